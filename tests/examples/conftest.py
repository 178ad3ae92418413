from tests.examples.project import data, examples, migrated
from tests.forge_process import on_both_databases

__all__ = ["data", "examples", "migrated", "on_both_databases"]
