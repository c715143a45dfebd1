"""Adds the folders of data, which lie beside the packages, to the wheel; all else stands in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithData(build_py):
    """Ships configs/, checkpoints/ and known_results/ below agents/, where agents.core.paths looks for them."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # an editable install reads them where they lie
            return
        for name in ("configs", "checkpoints", "known_results"):
            shutil.copytree(name, Path(self.build_lib, "agents", name), dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithData})
