"""Runs `tests/reader/test_properties.py` through the code for object storage."""

import pytest

from tests.objects.as_objects import as_objects
from tests.reader.test_properties import *  # noqa: F403

pytestmark = pytest.mark.usefixtures("as_objects")
__all__ = ["as_objects"]
