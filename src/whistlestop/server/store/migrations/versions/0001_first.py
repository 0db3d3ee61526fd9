"""The first schema: every table as schema.py has it on the day of the first release.

Frozen by the test that compares the migrated database with schema.py: the next change is a new file beside this one.
"""

from alembic import op

from whistlestop.server.store.schema import metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    metadata.create_all(op.get_bind())
