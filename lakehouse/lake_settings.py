"""Settings of hop 4: the location and the retention of the tables."""

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["LakeSettings"]


class LakeSettings(BaseModel):
    """Root folder and retention of the tables. Maintenance drops days that are past their retention."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: str = Field("tidegate-data/tables", description="Path or URI under which each table is a folder.")
    log_retention_hours: int = Field(
        24,
        ge=1,
        description="Hours that old versions of the tables stay readable. `sql --at` reaches back this far.",
    )
    readings_days: int = Field(90, ge=0, description="Days that `readings` keeps its rows. 0 keeps all.")
    dead_letters_days: int = Field(
        90, ge=0, description="Days that `dead_letters` and `duplicates` keep their rows. 0 keeps all."
    )
    rollups_days: int = Field(
        730, ge=0, description="Days that the rollups and the ledger keep their rows. 0 keeps all."
    )
    drop_limit_ratio: float = Field(
        0.2,
        gt=0,
        le=1,
        description="Largest share of a table that retention drops by itself when several days expire together. More days "
        "wait until `tidegate maintain --drop-days` confirms them.",
    )
