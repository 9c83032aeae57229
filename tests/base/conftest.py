"""Fixtures for the tests of the base package."""

import pytest
import torch

from tests.base.models import small_model
from tests.testing.broken_methods import Good


@pytest.fixture
def adapter():
    torch.manual_seed(0)
    return Good(small_model())
