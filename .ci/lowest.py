"""Print the lowest versions that pyproject.toml allows, as constraints: numpy>=2.0 -> numpy==2.0.

Only what we ask for by name is held down; what those packages need themselves is theirs to choose.
"""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
for wanted in [*project["dependencies"], *extras["dask"], *extras["pandas"]]:
    name, version = re.fullmatch(r"([\w-]+)>=([\d.]+)(?:,.*)?", wanted).groups()
    print(f"{name}=={version}")
