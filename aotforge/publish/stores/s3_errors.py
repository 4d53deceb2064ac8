"""Errors of S3 as faults: status and code are shown, never a request, a header or a signed address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore import exceptions as boto

from aotforge.publish.stores.store import ErrorKind, StoreError

_CREDENTIALS = (
    "credentials come from the environment (AWS_ACCESS_KEY_ID, ...), ~/.aws or the machine's role; see that they belong to this server "
    "(AWS_ENDPOINT_URL_S3) and may read and write this bucket"
)


@contextmanager
def faults(place: str) -> Iterator[None]:
    """Turns what boto3 raises into StoreError. `place` is the object's address, fit to be printed."""
    try:
        yield
    except boto.ClientError as error:
        raise _answered(place, error) from None
    except (boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError) as error:
        raise StoreError(
            ErrorKind.DENIED, f"{place}: no credentials ({type(error).__name__})", hint=_CREDENTIALS
        ) from None
    except (
        boto.ProfileNotFound,
        boto.InvalidConfigError,
        boto.ConfigParseError,
        boto.NoRegionError,
    ) as error:
        raise StoreError(
            ErrorKind.DENIED,
            f"{place}: {error}",
            cause="the AWS configuration does not fit",
            hint=_CREDENTIALS,
        ) from None
    except boto.ParamValidationError:
        raise StoreError(
            ErrorKind.REFUSED, f"{place} is no valid bucket or object name", hint="s3://BUCKET/PREFIX, bucket names have 3 to 63 characters"
        ) from None  # fmt: skip
    except (boto.BotoCoreError, ConnectionError) as error:
        raise StoreError(
            ErrorKind.UNAVAILABLE,
            f"{place}: the connection failed ({type(error).__name__})",
            cause="the server is down, or the network is, or AWS_ENDPOINT_URL_S3 names another server",
            hint="run the same command again: it goes on where it stopped",
        ) from None


def status_of(error: boto.ClientError) -> int:
    """HTTP status of an answer."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


_AGAIN = "run the same command again later: it goes on where it stopped"

_SAYINGS = {
    "no bucket": (ErrorKind.REFUSED, "the bucket does not exist", "make the bucket, or correct the address"),
    "exists": (ErrorKind.EXISTS, "something else is stored under this name", ""),
    "conflict": (ErrorKind.UNAVAILABLE, "another publisher writes the same object now", _AGAIN),
    "missing": (ErrorKind.MISSING, "there is no such object", "check the address"),
    "denied": (ErrorKind.DENIED, "the server refuses these credentials", _CREDENTIALS),
    "full": (
        ErrorKind.FULL,
        "the server has no room left",
        "make room there, then run the same command again",
    ),
    "failing": (ErrorKind.UNAVAILABLE, "the server failed repeatedly", _AGAIN),
    "other": (ErrorKind.REFUSED, "", "see what the server's documentation says of this code"),
}
_CODES = {
    "NoSuchBucket": "no bucket",
    "PreconditionFailed": "exists",
    "NoSuchKey": "missing",
    "NoSuchUpload": "conflict",
    "InvalidPart": "conflict",
    "QuotaExceeded": "full",
    "InsufficientStorage": "full",
    "XMinioStorageFull": "full",
    "SlowDown": "failing",
    "RequestTimeout": "failing",
}
_STATUSES = {
    412: "exists",
    409: "conflict",
    404: "missing",
    401: "denied",
    403: "denied",
    507: "full",
    429: "failing",
}


def _answered(place: str, error: boto.ClientError) -> StoreError:
    code, status = str(error.response.get("Error", {}).get("Code", "")), status_of(error)
    saying = _CODES.get(code) or _STATUSES.get(status) or ("failing" if status >= 500 else "other")
    kind, cause, hint = _SAYINGS[saying]
    answer = f"{status} {code}" if code != str(status) else code
    return StoreError(kind, f"{place}: {error.operation_name} was answered {answer}", cause=cause, hint=hint)
