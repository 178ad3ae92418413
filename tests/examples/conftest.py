from tests.examples.project import data, examples
from tests.forge_process import on_both_databases

__all__ = ["data", "examples", "on_both_databases"]
