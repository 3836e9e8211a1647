"""Runs `tests/sources/test_golden.py` through the code for object storage: with some of the folders, or all of them if
`tests.examples.IS_SOAK`.
"""

import pytest

from tests.objects.as_objects import as_objects
from tests.sources.test_golden import *  # noqa: F403

pytestmark = pytest.mark.usefixtures("as_objects")
__all__ = ["as_objects"]
