"""The package's page is README, with links to the repository at REPOSITORY_URL, which the release workflow sets."""

import os
import re
from pathlib import Path

from setuptools import setup

readme = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
if repository := os.environ.get("REPOSITORY_URL"):
    readme = readme.replace("](assets/", f"]({repository}/raw/main/assets/")  # pictures
    readme = re.sub(r"\]\((?!https?:)", f"]({repository}/blob/main/", readme)
setup(long_description=readme, long_description_content_type="text/markdown")
