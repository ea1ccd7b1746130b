"""Where a study's tables live: schemas, shards, hashes, damage and failures, in a folder or an object store."""

from unmask.lab.store.failures import ATTEMPTS, Failure, Failures
from unmask.lab.store.local import storage_error
from unmask.lab.store.manifest import DamagedManifest
from unmask.lab.store.remote import scheme_of
from unmask.lab.store.schemas import FORMAT, SCHEMAS, fingerprint, plain_schema, table_hash
from unmask.lab.store.shard import DamagedShard, Info, OtherFormat, Shard
from unmask.lab.store.store import Damage, Store
from unmask.lab.store.utilities import Utilities, split_table, utilities_of
