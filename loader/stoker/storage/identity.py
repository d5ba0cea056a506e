"""Whose credentials are meant."""

from __future__ import annotations

from dataclasses import dataclass, field

from stoker.errors import SpecError

IDENTITY_KEYS = ("profile", "role_arn", "role_session_name", "external_id", "web_identity_token_file")
"""Of ``storage_options``; none of them is a secret, so workers on other machines are told them."""

STATIC_KEYS = ("access_key_id", "secret_access_key", "session_token")


@dataclass(frozen=True, slots=True)
class Identity:
    """A profile of ``~/.aws/config``, a role, or a role by way of a profile, of keys or of a token in a file.

    Without profile, keys and file, the role is asked for by whatever AWS's default chain finds.
    """

    profile: str = ""
    role_arn: str = ""
    role_session_name: str = "stoker"
    external_id: str = ""
    web_identity_token_file: str = ""
    access_key_id: str = field(default="", repr=False)
    secret_access_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    sts_endpoint: str = ""
    region: str = ""

    def __post_init__(self) -> None:
        if not (self.profile or self.role_arn):
            raise SpecError(
                "storage_options: role_session_name, external_id and web_identity_token_file say how a role is taken: "
                "expected role_arn beside them, found none"
            )
        if self.web_identity_token_file and not self.role_arn:
            raise SpecError("storage_options: web_identity_token_file needs role_arn, the role that the token is for")
        if self.profile and self.access_key_id:
            raise SpecError("storage_options: profile and access_key_id both say whose credentials are meant: give one")
        if bool(self.access_key_id) != bool(self.secret_access_key):
            raise SpecError("storage_options: expected access_key_id and secret_access_key together, found one of them")
