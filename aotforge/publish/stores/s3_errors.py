"""Errors of boto3 as StoreError: status and code only, never a request or a signed address."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from aotforge.publish.stores.store import ErrorKind, StoreError

_CREDENTIALS = (
    "credentials come from the environment (AWS_ACCESS_KEY_ID, ...), ~/.aws or the machine's role; check that they belong to this server "
    "(AWS_ENDPOINT_URL_S3) and may read and write this bucket"
)
_AGAIN = "run the same command again later: it continues where it stopped"

_NO_BUCKET = (ErrorKind.REFUSED, "the bucket does not exist", "make the bucket, or correct the address")
_EXISTS = (ErrorKind.EXISTS, "something else is stored under this name", "")
_CONFLICT = (ErrorKind.UNAVAILABLE, "another publisher writes the same object now", _AGAIN)
_MISSING = (ErrorKind.MISSING, "there is no such object", "check the address")
_DENIED = (ErrorKind.DENIED, "the server refuses these credentials", _CREDENTIALS)
_FULL = (ErrorKind.FULL, "the server has no space left", "make space there, then run the same command again")
_TOO_LARGE = (ErrorKind.REFUSED, "one PUT has at most 5 GiB", "publish smaller archives, e.g. one per arch")
_FAILING = (ErrorKind.UNAVAILABLE, "the server failed repeatedly", _AGAIN)
_OTHER = (ErrorKind.REFUSED, "", "see the server's documentation of this code")

_CODES = {
    "NoSuchBucket": _NO_BUCKET,
    "PreconditionFailed": _EXISTS,
    "NoSuchKey": _MISSING,
    "EntityTooLarge": _TOO_LARGE,
    **dict.fromkeys(("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull"), _FULL),
    **dict.fromkeys(("SlowDown", "RequestTimeout"), _FAILING),
}
_STATUSES = {
    412: _EXISTS,
    409: _CONFLICT,
    404: _MISSING,
    401: _DENIED,
    403: _DENIED,
    507: _FULL,
    429: _FAILING,
}
_OTHER_ANSWERS = (ResponseParserError, KeyError, ValueError, TypeError, AttributeError, RuntimeError)
"""What botocore and its callers raise where a field is missing, or of another kind."""
_CONFIGURATION = (boto.ProfileNotFound, boto.InvalidConfigError, boto.ConfigParseError, boto.NoRegionError)


@contextmanager
def s3_errors(place: str) -> Iterator[None]:
    """Turns what boto3 raises into StoreError. `place` is the object's address, without secrets."""
    try:
        yield
    except boto.ClientError as error:
        code, status = code_of(error), status_of(error)
        known = _CODES.get(code) or _STATUSES.get(status)
        kind, cause, hint = known or (_FAILING if status >= 500 else _OTHER)
        answer = f"{status} {code}" if code != str(status) else code
        what = f"{place}: {error.operation_name} was answered {answer}"
        raise StoreError(kind, what, cause=cause, hint=hint) from None
    except (boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError) as error:
        what = f"{place}: no credentials ({type(error).__name__})"
        raise StoreError(ErrorKind.DENIED, what, hint=_CREDENTIALS) from None
    except _CONFIGURATION as error:
        cause = "the AWS configuration is not valid"
        raise StoreError(ErrorKind.DENIED, f"{place}: {error}", cause=cause, hint=_CREDENTIALS) from None
    except boto.ParamValidationError:
        what = f"{place} is not a valid bucket or object name"
        hint = "s3://BUCKET/PREFIX, bucket names have 3 to 63 characters"
        raise StoreError(ErrorKind.REFUSED, what, hint=hint) from None
    except _OTHER_ANSWERS:
        what = f"{place}: the response is not one of S3"
        cause = "another kind of server, or a proxy, responds at this address"
        hint = "check the address and AWS_ENDPOINT_URL_S3"
        raise StoreError(ErrorKind.UNAVAILABLE, what, cause=cause, hint=hint) from None
    except (boto.BotoCoreError, HTTPError, ConnectionError) as error:
        raise StoreError(
            ErrorKind.UNAVAILABLE,
            f"{place}: the connection failed ({type(error).__name__})",
            cause="the server or the network is down, or AWS_ENDPOINT_URL_S3 names another server",
            hint="run the same command again: it continues where it stopped",
        ) from None


def status_of(error: boto.ClientError) -> int:
    """HTTP status of a response."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def code_of(error: boto.ClientError) -> str:
    """S3's error code of a response, which messages show; its status where it is not a word."""
    code = str(error.response.get("Error", {}).get("Code") or "")
    return code if re.fullmatch(r"[A-Za-z0-9._-]{1,80}", code) else str(status_of(error))
