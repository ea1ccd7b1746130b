"""Where a study's tables live: schemas, shards, hashes."""

from unmask.lab.store.hashes import fingerprint, table_hash
from unmask.lab.store.manifest import DamagedManifest, OldFormat
from unmask.lab.store.pieces import DamagedPiece
from unmask.lab.store.schemas import FORMAT, SCHEMAS
from unmask.lab.store.shards import Shard, Unit
from unmask.lab.store.store import Store
from unmask.lab.store.utilities import Utilities, parts, utilities_of

__all__ = [
    "FORMAT",
    "SCHEMAS",
    "DamagedManifest",
    "DamagedPiece",
    "OldFormat",
    "Shard",
    "Store",
    "Unit",
    "Utilities",
    "fingerprint",
    "parts",
    "table_hash",
    "utilities_of",
]
