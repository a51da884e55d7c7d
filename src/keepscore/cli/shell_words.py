"""Messages of the library in the words of the shell.

The library's messages name Python arguments ("train with loss=ks.BCE()"); here they name flags.
"""

from __future__ import annotations

import re

from keepscore.errors import plain_numbers

_SAME = "simulate|train|calibrate|worth|verify|repair|report"  # commands named as functions are
# In this order: the longer phrase before the shorter one that it holds.
_PHRASES = (
    (r"Simulate with scores=True from a model", "Simulate with scores from a model"),
    (r"pass calibration=ks\.calibrate\(\.\.\.\)", "run `keepscore calibrate`"),
    (r"ks\.calibrate and ks\.local_coverage, which need", "`keepscore calibrate`, which needs"),
    (r" \(given\(X, each=True\): one per observation\)", ""),
    (r"ks\.simulate\(model, (\d+), scores=False\)", r"keepscore simulate ... -n \1 --no-scores"),
    (r"ks\.simulate\(model, (\d+)\)", r"keepscore simulate ... -n \1"),
    (r"ks\.load\([^)]*\)", "Python"),
    (r"\bloss=ks\.BCE\(\)", "--loss bce"),
    (r"\bloss=ks\.ASA\(\)", "--loss asa"),
    (r"\bks\.(BCE|ASA)\([^)]*\)", lambda m: f"--loss {m[1].lower()}"),
    (r"\bTrainConfig\((\w+)=(\w+)\)", lambda m: f"--{_flag(m[1])} {m[2]}"),
    (r"\bscores=True\b", "--scores"),
    (r"\bscores=False\b", "--no-scores"),
    (r"\bresume=False\b", "--fresh"),
    (r"\bjobs=(\d+)", r"--jobs \1"),
    (r"What was computed is in `computed` of this error, and in the folder if path= was given\.",
     "What was computed is kept in the folder of --out, if there is one."),
    (r"\bwith path= what was computed is kept", "with --out what was computed is kept"),
    (r"\bWith path= what was computed is kept", "With --out what was computed is kept"),
    (r"\bevaluations must be", "--exact must be"),
    (r" \(`refinement\.contains`\)", ""),
    (r"\bnetwork='([^']*)'", r"--network \1"),
    (r"\bmethod=\"calibrated\"", "a calibrated set"),
    (r"\bks\.check_model\b(\([^)]*\))?", "`keepscore check-model`"),
    (rf"\bks\.({_SAME})\b(\([^)]*\))?", r"`keepscore \1`"),
    (r"\bks\.scorecard\b(\([^)]*\))?", "`keepscore evaluate`"),
    (r"\b(min|max)_epochs\b", r"--\1-epochs"),
    (r"\blearning_rate\b", "--learning-rate"),
)  # fmt: skip


def shell_words(text: str) -> str:
    """The same message in the words of the command line."""
    for pattern, words in _PHRASES:
        text = re.sub(pattern, words, text)
    return plain_numbers(text)


def _flag(name: str) -> str:
    return name.replace("_", "-")
