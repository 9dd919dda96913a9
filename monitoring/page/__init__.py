"""The ops page's server: snapshots in, HTTP out. Read-only without a token; what it cannot know itself it asks of `Answers`."""
