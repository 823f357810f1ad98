"""The shipped contract suites show what differs, as the tests here do."""

import pytest

pytest.register_assert_rewrite("persys_core.testing")
