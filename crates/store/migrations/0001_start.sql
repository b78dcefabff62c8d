-- The first shape of the database. Text ids, integer milliseconds, JSON as text: the same on every database.

CREATE TABLE runs (
    id              TEXT    NOT NULL PRIMARY KEY,
    version         BIGINT  NOT NULL,
    name            TEXT    NOT NULL,
    -- What it was started with, as its maker wrote it; never changed.
    spec            TEXT    NOT NULL,
    state           TEXT    NOT NULL,
    status          TEXT    NOT NULL,
    created_at      BIGINT  NOT NULL,
    updated_at      BIGINT  NOT NULL,
    -- Set once, when the run has reached an end; retention looks at nothing else to call a run finished.
    ended_at        BIGINT,
    idempotency_key TEXT    UNIQUE,
    request_hash    TEXT
);
CREATE INDEX runs_created ON runs (created_at, id);
CREATE INDEX runs_ended ON runs (ended_at, id);

-- Append-only: what moved each run, by whom, and when. Row `version` led to the run's version of that number.
CREATE TABLE transitions (
    run_id   TEXT   NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    version  BIGINT NOT NULL,
    event    TEXT   NOT NULL,
    actor    TEXT   NOT NULL,
    at       BIGINT NOT NULL,
    PRIMARY KEY (run_id, version)
);

CREATE TABLE outbox (
    seq           INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    effect_id     TEXT    NOT NULL UNIQUE,
    run_id        TEXT    NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    payload       TEXT    NOT NULL,
    attempts      BIGINT  NOT NULL DEFAULT 0,
    next_at       BIGINT  NOT NULL,
    claim         TEXT,
    claimed_until BIGINT  NOT NULL DEFAULT 0,
    last_error    TEXT,
    done_at       BIGINT,
    given_up_at   BIGINT
);
CREATE INDEX outbox_open ON outbox (seq) WHERE done_at IS NULL AND given_up_at IS NULL;
CREATE INDEX outbox_run ON outbox (run_id, seq);

CREATE TABLE leases (
    resource   TEXT   NOT NULL PRIMARY KEY,
    holder     TEXT   NOT NULL,
    fence      BIGINT NOT NULL,
    -- Zero when nobody holds it. The row stays, because the fence must never start again.
    expires_at BIGINT NOT NULL
);

CREATE TABLE pushes (
    id          TEXT   NOT NULL PRIMARY KEY,
    run_id      TEXT   NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    phase       TEXT   NOT NULL,
    attempt     BIGINT NOT NULL,
    fence       BIGINT NOT NULL,
    ref_name    TEXT   NOT NULL,
    -- None where the push makes the branch.
    old_commit  TEXT,
    new_commit  TEXT   NOT NULL,
    state       TEXT   NOT NULL CHECK (state IN ('recorded', 'done', 'void')),
    recorded_at BIGINT NOT NULL,
    finished_at BIGINT
);
-- One push completes a phase: at most one that counts per attempt.
CREATE UNIQUE INDEX pushes_one ON pushes (run_id, phase, attempt) WHERE state <> 'void';
CREATE INDEX pushes_run ON pushes (run_id, recorded_at);

CREATE TABLE phase_tokens (
    token_hash TEXT   NOT NULL PRIMARY KEY,
    run_id     TEXT   NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    phase      TEXT   NOT NULL,
    attempt    BIGINT NOT NULL,
    fence      BIGINT NOT NULL,
    branch     TEXT,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT
);
CREATE INDEX phase_tokens_run ON phase_tokens (run_id);

CREATE TABLE api_tokens (
    id           TEXT   NOT NULL PRIMARY KEY,
    token_hash   TEXT   NOT NULL UNIQUE,
    name         TEXT   NOT NULL,
    scopes       TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    last_used_at BIGINT,
    expires_at   BIGINT,
    revoked_at   BIGINT
);

CREATE TABLE gate_decisions (
    gate_id  TEXT   NOT NULL PRIMARY KEY,
    run_id   TEXT   NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    phase    TEXT   NOT NULL,
    answer   TEXT   NOT NULL,
    -- What the person saw: commit, diff, next phase, effective policy.
    shown    TEXT   NOT NULL,
    actor    TEXT   NOT NULL,
    at       BIGINT NOT NULL
);
CREATE INDEX gate_decisions_run ON gate_decisions (run_id, at);

CREATE TABLE events (
    run_id  TEXT   NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    phase   TEXT   NOT NULL,
    attempt BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    kind    TEXT   NOT NULL,
    payload TEXT   NOT NULL,
    PRIMARY KEY (run_id, phase, attempt, seq)
);

CREATE TABLE logs (
    run_id     TEXT   NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    phase      TEXT   NOT NULL,
    attempt    BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    sealed_at  BIGINT,
    PRIMARY KEY (run_id, phase, attempt)
);

CREATE TABLE artifacts (
    run_id     TEXT   NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    name       TEXT   NOT NULL,
    phase      TEXT   NOT NULL,
    attempt    BIGINT NOT NULL,
    sha256     TEXT   NOT NULL,
    size_bytes BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (run_id, name)
);
CREATE INDEX artifacts_content ON artifacts (sha256);

CREATE TABLE secrets (
    name       TEXT   NOT NULL PRIMARY KEY,
    version    BIGINT NOT NULL,
    -- Which master key sealed the data key.
    key_id     TEXT   NOT NULL,
    sealed_key BLOB   NOT NULL,
    sealed     BLOB   NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE TABLE settings (
    name       TEXT   NOT NULL PRIMARY KEY,
    value      TEXT   NOT NULL,
    updated_at BIGINT NOT NULL
);
