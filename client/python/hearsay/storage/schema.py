"""The tables of a device's file: accounts, memos, waiting reports, sent batches, trainings."""

APPLICATION = 0x48525359  # "HRSY"
VERSION = 2

TABLES = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE surveys (
    survey TEXT PRIMARY KEY,
    plan BLOB NOT NULL DEFAULT x'',       -- the one plan of the survey, once it was accepted
    fetched REAL NOT NULL DEFAULT 0,      -- when it was last asked for, in seconds since 1970
    server_time REAL NOT NULL DEFAULT 0   -- the server's latest time, in seconds since 1970
) WITHOUT ROWID;
CREATE TABLE people (                     -- what one person chose for one survey
    survey TEXT, person BLOB,             -- a keyed hash of the name; x'' is the device's own user
    consent INTEGER NOT NULL DEFAULT 0,
    caps TEXT NOT NULL DEFAULT '{}',
    PRIMARY KEY (survey, person)
) WITHOUT ROWID;
CREATE TABLE accounts (
    person BLOB PRIMARY KEY,
    account TEXT NOT NULL DEFAULT '{}',   -- what was spent, by survey
    caps TEXT NOT NULL DEFAULT '{}'       -- the person's own caps for life, over all surveys
) WITHOUT ROWID;
CREATE TABLE memos (                      -- keys are hashed, with the salt
    person BLOB, survey TEXT, attribute TEXT, mechanism BLOB, key BLOB, memo BLOB NOT NULL,
    PRIMARY KEY (person, survey, attribute, mechanism, key)
) WITHOUT ROWID;
CREATE TABLE reports (
    survey TEXT, seq INTEGER,             -- sequence number within the survey
    size INTEGER NOT NULL,                -- the bytes of all of them up to this one
    at REAL NOT NULL,
    person BLOB NOT NULL,
    report BLOB NOT NULL,                 -- a Batch of one row, without an id
    PRIMARY KEY (survey, seq)
) WITHOUT ROWID;
CREATE TABLE batches (
    seq INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, survey TEXT NOT NULL,
    period TEXT NOT NULL, rows INTEGER NOT NULL, size INTEGER NOT NULL, batch BLOB NOT NULL,
    people BLOB NOT NULL,                 -- whose the rows are, 16 bytes each, in their order
    at REAL NOT NULL,                     -- when its oldest report was made
    leased REAL NOT NULL DEFAULT 0, left INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE forgets (                    -- batch ids the server may hold although we dropped them
    id BLOB PRIMARY KEY, survey TEXT NOT NULL, period TEXT NOT NULL,
    asked INTEGER NOT NULL                -- whether the server is to forget it, or only could be
) WITHOUT ROWID;
CREATE TABLE sent (
    seq INTEGER PRIMARY KEY, survey TEXT NOT NULL, at REAL NOT NULL,
    became TEXT NOT NULL, batch BLOB NOT NULL
);
CREATE TABLE totals (                     -- of a survey's reports and their bytes, ever:
    survey TEXT PRIMARY KEY,
    seq INTEGER NOT NULL, size INTEGER NOT NULL,          -- of those that left the table reports
    gone INTEGER NOT NULL, gone_size INTEGER NOT NULL     -- of those that wait no more
) WITHOUT ROWID;
CREATE TABLE counters (
    survey TEXT, name TEXT, count INTEGER NOT NULL, PRIMARY KEY (survey, name)
) WITHOUT ROWID;
"""

TRAININGS = """
CREATE TABLE IF NOT EXISTS trainings (
    training TEXT PRIMARY KEY,
    declared BLOB NOT NULL                -- the one training of this name, as it was accepted
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS participations (
    training TEXT, person BLOB,
    protection TEXT NOT NULL,             -- 'central', 'local_noise' or 'record_level'
    rho INTEGER NOT NULL,                 -- billionths, charged at the first one; 0 but for central
    most INTEGER NOT NULL, separation INTEGER NOT NULL,
    used INTEGER NOT NULL,                -- updates that were ever sealed
    last_round INTEGER NOT NULL,
    PRIMARY KEY (training, person)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS updates (      -- sealed, and not answered for good
    seq INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, training TEXT NOT NULL,
    person BLOB NOT NULL, round INTEGER NOT NULL, model BLOB NOT NULL, payload BLOB NOT NULL
)
"""
"""Tables that a file gets in the transaction that first needs them: a version of the SDK that does
not know them goes on with the rest, and a file without a training has none."""

ENVELOPES = """
CREATE TABLE IF NOT EXISTS envelopes (    -- sealed records, by the batch inside or to be forgotten
    id BLOB, forget INTEGER, envelope BLOB NOT NULL, PRIMARY KEY (id, forget)
) WITHOUT ROWID;;
CREATE TRIGGER IF NOT EXISTS envelope_of_batch AFTER DELETE ON batches
BEGIN DELETE FROM envelopes WHERE id = OLD.id AND NOT forget; END;;
CREATE TRIGGER IF NOT EXISTS envelope_of_forget AFTER DELETE ON forgets
BEGIN DELETE FROM envelopes WHERE id = OLD.id AND forget; END
"""
"""The same for surveys whose records are sealed. A sealed record goes with the row it is of."""
