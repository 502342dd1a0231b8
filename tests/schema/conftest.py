"""The classes that schemas of these tests name."""

import pytest

from pydispatch.schema.user_types import register_opaque_type, unregister_opaque_type
from tests.schema.samples import Access, Color, Plan


@pytest.fixture(scope="module", autouse=True)
def _registered_types():
    classes = (Color, Access, Plan)
    for cls in classes:
        register_opaque_type(cls)
    yield
    for cls in classes:
        unregister_opaque_type(cls)
