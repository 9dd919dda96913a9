"""Settings of hop 4: the location and the retention of the tables."""

from pydantic import BaseModel, ConfigDict, Field, SecretStr

__all__ = ["LakeSettings"]


class LakeSettings(BaseModel):
    """Root folder and retention of the tables. Maintenance drops days that are past their retention.

    `s3_…` are the object store of tables at `s3a://BUCKET/…`, for readers without Spark. Without keys, the login comes from where
    Amazon's clients look for it: the environment, or the role of the machine.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: str = Field(
        "tidegate-data/tables", description="Path or URI (s3a://BUCKET/…) under which each table is a folder."
    )
    s3_endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^/@?#\s]+/?$",
        description="Address of the object store for s3a:// places, such as https://minio.example.org:9000. Default: Amazon's, "
        "by region.",
    )
    s3_region: str | None = Field(
        None,
        min_length=1,
        description="Region of the bucket. Default: that of the environment (AWS_REGION), else us-east-1, which most stores "
        "other than Amazon's take.",
    )
    s3_path_style: bool = Field(
        True,
        description="Name the bucket in the path of a request to s3_endpoint. false names it in the host, as Amazon does.",
    )
    s3_access_key: SecretStr | None = Field(
        None, description="Id of the access key. Default: the login of the environment or of the machine."
    )
    s3_secret_key: SecretStr | None = Field(
        None,
        description="Secret of the access key. `file:PATH` reads it from a file that only its owner may read.",
    )
    s3_session_token: SecretStr | None = Field(None, description="Session token, if the access key is a temporary one.")
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
