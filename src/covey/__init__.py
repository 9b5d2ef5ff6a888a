"""Covey: federated recommendation, measured for accuracy, privacy, traffic and under attack."""

import os
import sys

# Matrix products then have the same bits wherever their operands lie in memory.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")


def _leave_current_folder() -> None:
    """Under `python -m covey`, removes the current folder from the path.

    A numpy.py there would be imported instead of NumPy. Only if covey itself was found there, the
    folder stays, behind all other places.
    """
    if sys.flags.safe_path or sys.argv[:1] != ["-m"]:  # "-m" while Python looks for the module
        return
    word = sys.orig_argv[-len(sys.argv)]  # covey, covey.cli or -mcovey
    module = word.partition("m")[2] if word.startswith("-") else word
    if module.partition(".")[0] != "covey":
        return
    folder = sys.path.pop(0)
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if home == os.path.abspath(folder) and home not in sys.path:
        sys.path.append(home)


_leave_current_folder()  # before the first import that could be taken from the current folder

from typing import TYPE_CHECKING  # noqa: E402

from .core.lazy import lazy  # noqa: E402

if TYPE_CHECKING:
    from .core.errors import CoveyError as CoveyError
    from .data.dataset import Dataset as Dataset
    from .inference.api import Recommender as Recommender
    from .inference.api import fit as fit
    from .inference.api import load as load

__version__ = "0.1.0"
__all__ = ["CoveyError", "Dataset", "Recommender", "__version__", "fit", "load"]
__getattr__, __dir__ = lazy(__name__)  # so that `import covey` does not load torch
