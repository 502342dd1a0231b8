"""For the tests of users: are operators what they say?"""

from pydispatch.exceptions import OpCheckError
from pydispatch.testing.opcheck import opcheck

__all__ = ["OpCheckError", "opcheck"]
