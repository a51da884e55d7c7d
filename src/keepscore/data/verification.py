"""Finding damage in a data set on disk, and undoing it.

Every file is checked against a checksum recorded elsewhere or in itself. The plan is kept twice
(plan.json, manifest.json) and so is each shard's record, so a damaged one is restored from the
other; a damaged array is simulated again from its seed, and must come out as it was recorded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from keepscore.data import store
from keepscore.data.plan import Plan, plain_description
from keepscore.data.reading import existing, finish
from keepscore.data.shard import make_shard
from keepscore.data.store import ShardRecord
from keepscore.differences import differences
from keepscore.errors import (
    FormatError,
    MismatchError,
    MissingError,
    StorageError,
    UnknownNameError,
)
from keepscore.files import remove_leftovers
from keepscore.models import Model, build
from keepscore.processes import one_thread

NO_RECORD = "is not written"


@dataclass(frozen=True)
class Damage:
    """One file that is not as it should be."""

    file: str
    problem: str
    shard: int | None = None

    def __str__(self) -> str:
        return f"{self.file} {self.problem}"


@dataclass(frozen=True)
class Verification:
    """What `verify` found: `ok` if nothing is damaged; `complete` if also nothing is left to do."""

    path: Path
    shards: int
    done: int
    complete: bool
    damaged: tuple[Damage, ...]

    @property
    def ok(self) -> bool:
        return not self.damaged

    def __str__(self) -> str:
        state = "complete" if self.complete else "incomplete"
        head = f"{self.path}: {self.done} of {self.shards} shards sound, {state}"
        return "\n  ".join(
            [head + (", nothing damaged" if self.ok else ""), *map(str, self.damaged)]
        )


def verify(path: str | os.PathLike[str]) -> Verification:
    """Check every byte of a data set on disk against its checksums.

    Args:
        path: The folder of the data set.

    Returns:
        What was found: `ok` if nothing is damaged, `complete` if also nothing is left to simulate,
        `damaged` with each file and what is wrong with it. Damage is listed, not raised.

    Raises:
        StorageError: The folder is no data set.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import keepscore as ks
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     data = ks.simulate(ks.models.GaussianField(shape=(4, 4)), 50, path=folder)
        ...     before = ks.verify(folder)
        ...     file = next(Path(folder).glob("*score*.npy"))
        ...     size = file.write_bytes(file.read_bytes()[:-8] + bytes(8))
        ...     after = ks.verify(folder)
        >>> before.ok, after.ok, len(after.damaged)
        (True, False, 1)
    """
    folder = existing(path)
    if not (folder / store.PLAN).exists() and not (folder / store.MANIFEST).exists():
        raise StorageError(f"{folder} is not a data set: it has no {store.PLAN}.")
    damaged = _damaged_plan(folder)
    try:
        plan, _ = store.read_plan(folder)
    except FormatError:
        return Verification(folder, 0, 0, False, tuple(damaged))
    listed, complete = _listed_records(folder, plan)
    sound = 0
    for _, problems in check_shards(folder, plan, range(plan.shards), listed):
        # Without a manifest, a shard without a record is not damaged: it is still to be simulated.
        damaged += [] if not complete and not_written(problems) else problems
        sound += not problems
    return Verification(folder, plan.shards, sound, complete and not damaged, tuple(damaged))


def not_written(problems: list[Damage]) -> bool:
    """Whether all that is wrong with a shard is that its record is not written yet."""
    return len(problems) == 1 and problems[0].problem == NO_RECORD


def check_shards(
    folder: Path, plan: Plan, shards: Iterable[int], listed: Mapping[int, ShardRecord] | None = None
) -> list[tuple[int, list[Damage]]]:
    """Each shard with what is wrong with it, every byte checked. Checksums run in threads."""
    digest, listed = plan.digest(), listed or {}
    present = {entry.name for entry in os.scandir(folder)}

    def problems(index: int) -> tuple[int, list[Damage]]:
        found, file = [], store.record_file(folder, index).name
        record = listed.get(index)
        if record is None and file not in present:
            return index, [Damage(file, NO_RECORD, index)]
        try:
            own = store.read_record(folder, plan, index, digest)
            if record is not None and own != record:
                found.append(Damage(file, f"does not agree with {store.MANIFEST}", index))
            record = record or own
        except StorageError as error:
            gone = not (folder / file).exists()
            found.append(Damage(file, NO_RECORD if gone else str(error), index))
        except FormatError:
            found.append(Damage(file, "is damaged", index))
        for name in record.files if record else ():
            problem = store.array_problem(folder, record, name, full=True) if record else None
            if problem:
                found.append(Damage(store.array_file(folder, index, name).name, problem, index))
        return index, found

    threads = ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1))
    try:
        return list(threads.map(problems, shards))
    finally:
        threads.shutdown(cancel_futures=True)  # after Ctrl-C, what has not begun is left undone


def repair(path: str | os.PathLike[str], model: Model | None = None) -> Verification:
    """Restore every damaged file of a data set to the bytes it had.

    A shard is a function of the plan and its number, so it is simulated again and compared with its
    checksum. A set whose shards are all there, and which lacks only the manifest, gets it.

    Args:
        path: The folder of the data set.
        model: The model that made it. Built-in models are rebuilt from the plan; others must be
            given.

    Returns:
        What `ks.verify` found before the repair.

    Raises:
        FormatError: Both copies of the plan are lost.
        MissingError: The model is needed and was not given.
        MismatchError: The model is another one, or makes other bytes than are on record.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import keepscore as ks
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     data = ks.simulate(ks.models.GaussianField(shape=(4, 4)), 50, path=folder)
        ...     next(Path(folder).glob("*score*.npy")).unlink()
        ...     found = ks.repair(folder)
        ...     print(found.ok, ks.verify(folder).ok)
        False True
    """
    folder = existing(path)
    found = verify(folder)
    if found.ok:
        if not found.complete and found.done == found.shards:
            finish(folder)
        return found
    remove_leftovers(folder)
    try:
        plan, origin = store.read_plan(folder)
    except FormatError as error:
        raise FormatError(
            f"{error} Both copies of the plan are lost; the original `simulate` call, with the "
            "same arguments and this folder, puts it back."
        ) from None
    listed, complete = _listed_records(folder, plan)
    if any(d.file == store.PLAN for d in found.damaged):
        store.write_plan(folder, plan, origin)
    digest = plan.digest()
    by_shard: dict[int, list[str]] = {}
    for damage in found.damaged:
        if damage.shard is not None:
            by_shard.setdefault(damage.shard, []).append(damage.file)
    for index, files in by_shard.items():
        record = listed.get(index)
        own = store.record_file(folder, index).name
        if record is not None and files == [own]:
            store.write_record(folder, plan, record)
            continue
        if record is None and own not in files:
            record = store.read_record(folder, plan, index, digest)
        if model is None:
            model = _rebuilt(plan)
        _require_same_model(plan, model, origin, compared=record is not None)
        _simulate_again(folder, plan, model, index, record)
    if complete and any(d.file == store.MANIFEST for d in found.damaged):
        records = {k: store.read_record(folder, plan, k, digest) for k in range(plan.shards)}
        store.write_manifest(folder, plan, origin, records)
    left = verify(folder)
    if not left.ok:
        raise FormatError(f"Still damaged after repair; is the disk failing? {left}")
    return found


def recorded(folder: Path, plan: Plan, shards: Iterable[int]) -> dict[int, ShardRecord]:
    """What is on record of these shards, in their own files or in the manifest."""
    listed, digest = _listed_records(folder, plan)[0], plan.digest()
    found = {}
    for index in shards:
        try:
            found[index] = store.read_record(folder, plan, index, digest)
        except (FormatError, StorageError):
            if index in listed:
                found[index] = listed[index]
    return found


def _damaged_plan(folder: Path) -> list[Damage]:
    damaged, plans = [], []
    for name in (store.PLAN, store.MANIFEST):
        try:
            plans.append(store.read_plan_of(folder / name))
            if name == store.MANIFEST:
                store.read_manifest(folder)
        except StorageError:
            if name == store.PLAN or (folder / name).exists():
                damaged.append(Damage(name, "is missing or cannot be read"))
        except FormatError:
            damaged.append(Damage(name, "is damaged"))
    if len(plans) == 2 and plans[0] != plans[1]:
        damaged.append(Damage(store.PLAN, f"does not agree with {store.MANIFEST}"))
    return damaged


def _listed_records(folder: Path, plan: Plan) -> tuple[dict[int, ShardRecord], bool]:
    """The manifest's records, and whether the set was complete (it had a manifest)."""
    if not (folder / store.MANIFEST).exists():
        return {}, False
    try:
        there, _, records = store.read_manifest(folder)
        return (dict(enumerate(records)) if there == plan else {}), True
    except (FormatError, StorageError):
        return {}, True


def _rebuilt(plan: Plan) -> Model:
    try:
        return build(plan.model)
    except UnknownNameError:
        raise MissingError(
            f"{plan.model['name']!r} is not a built-in model; pass it: repair(path, model=...)."
        ) from None


def _require_same_model(
    plan: Plan, model: Model, origin: store.Environment, compared: bool
) -> None:
    """Refuse another model. Where the result is compared with a checksum, that judges the code."""
    found = list(differences(plan.model, plain_description(model), "model"))
    if compared:
        found = [text for text in found if not text.startswith(store.CODE)]
    if found:
        raise MismatchError(
            f"The data are of another model. It differs in {'; '.join(found[:6])}. "
            f"{store.code_words(found, origin)}".rstrip()
        )


def _simulate_again(
    folder: Path, plan: Plan, model: Model, index: int, record: ShardRecord | None
) -> None:
    with one_thread():
        shard = make_shard(model, plan, index)
    store.write_shard(folder, plan, shard, record)
