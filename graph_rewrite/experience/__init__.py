"""Experience: what windows cost before and after rewrites, kept from search to search.

`ExperienceStore` is the file, `ExperienceLog` appends to it during a search, `exchange` exports and merges, and
`graph_of` makes a stored window a graph again. docs/concepts/experience.md describes what is stored.
"""

from graph_rewrite.experience.log import ExperienceLog
from graph_rewrite.experience.rebuilding import graph_of
from graph_rewrite.experience.records import SCHEMA_VERSION, Label
from graph_rewrite.experience.store import ExperienceStore, default_store_path

__all__ = ["SCHEMA_VERSION", "ExperienceLog", "ExperienceStore", "Label", "default_store_path", "graph_of"]
