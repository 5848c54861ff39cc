"""The tree of errors, and what a shortage says."""

import builtins
import errno
import pickle

import pytest

import vmkv
from vmkv import errors

BUILTINS = {
    "InvalidError": "ValueError",
    "RangeError": "IndexError",
    "SizeError": "OverflowError",
    "Shortage": "MemoryError",
    "HostMemoryError": "MemoryError",
    "StaleError": "LookupError",
    "ClosedError": "ValueError",
    "BusyError": "BlockingIOError",
    "WaitTimeoutError": "TimeoutError",
    "UnreachableError": "TypeError",
    "DeviceError": "OSError",
    "AddressError": "OSError",
    "DeviceNotFoundError": "OSError",
    "DeviceLostError": "OSError",
    "DeviceMemoryError": "MemoryError",
    "UnsupportedError": "NotImplementedError",
}


def test_the_table_of_builtins_is_complete() -> None:
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.Error)
    }
    assert classes == {"Error", *BUILTINS}
    assert {name for name in classes if getattr(vmkv, name) is not getattr(errors, name)} == set()


@pytest.mark.parametrize(("name", "builtin"), BUILTINS.items())
def test_each_error_is_a_vmkv_error_and_a_builtin(name: str, builtin: str) -> None:
    kind = getattr(errors, name)
    with pytest.raises(getattr(builtins, builtin)) as caught:
        raise kind("why")
    assert isinstance(caught.value, errors.Error)
    assert str(caught.value) == "why"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.EINVAL, errors.InvalidError),
        (errno.E2BIG, errors.InvalidError),
        (errno.ERANGE, errors.RangeError),
        (errno.EOVERFLOW, errors.SizeError),
        (errno.ENOMEM, errors.HostMemoryError),
        (errno.ESTALE, errors.StaleError),
        (errno.EBUSY, errors.BusyError),
        (errno.ETIME, errors.WaitTimeoutError),
        (errno.EFAULT, errors.AddressError),
        (errno.ENODEV, errors.DeviceLostError),
        (errno.EIO, errors.DeviceError),
        (errno.ENOSPC, errors.DeviceError),
    ],
)
def test_errno_becomes_the_fitting_error(code: int, kind: type[errors.Error]) -> None:
    with pytest.raises(errors.Error) as caught:
        errors.fail(-code, "what was wrong")
    assert type(caught.value) is kind
    assert caught.value.errno == code
    assert str(caught.value) == "what was wrong"


def test_an_error_without_text_says_what_errno_means() -> None:
    with pytest.raises(errors.DeviceError, match="Input/output error"):
        errors.fail(-errno.EIO, "")


@pytest.mark.parametrize(
    "error",
    [errors.DeviceError("gone", errno.EIO), errors.Shortage(needed=8, missing=4, kind="mappings")],
)
def test_errors_can_be_pickled(error: errors.Error) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.errno == error.errno
    assert vars(copy) == vars(error)


def test_shortage_carries_its_numbers() -> None:
    error = errors.Shortage(
        kind="bytes",
        needed=3 << 20,
        missing=1 << 20,
        retiring_bytes=512 << 10,
        retiring_until=7,
        transit_bytes=64 << 10,
        transit_point=99,
        seq_needed_bytes=(1 << 20, 2 << 20),
    )
    assert (error.kind, error.needed, error.missing) == ("bytes", 3 << 20, 1 << 20)
    assert (error.retiring_bytes, error.retiring_until) == (512 << 10, 7)
    assert (error.transit_bytes, error.transit_point) == (64 << 10, 99)
    assert error.seq_needed_bytes == (1 << 20, 2 << 20)
    assert error.errno == errno.ENOSPC


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            errors.Shortage(needed=3 << 20, missing=1 << 20),
            "not enough memory: 3 MiB more is needed, 1 MiB of it is missing; "
            "close a sequence or raise the budget",
        ),
        (
            errors.Shortage(needed=3 << 20, missing=1 << 20, retiring_bytes=1 << 20,
                            retiring_until=7),
            "not enough memory: 3 MiB more is needed, 1 MiB of it is missing; "
            "1 MiB comes free with retire(7)",
        ),
        (
            errors.Shortage(needed=3 << 20, missing=1 << 20, retiring_bytes=512 << 10,
                            retiring_until=7, transit_bytes=64 << 10, transit_point=99),
            "not enough memory: 3 MiB more is needed, 1 MiB of it is missing; "
            "512 KiB comes free with retire(7); 64 KiB comes free at point 99; "
            "close a sequence or raise the budget",
        ),
        (
            errors.Shortage(kind="mappings", needed=1200, missing=34),
            "too few mappings: 1,200 more are needed, 34 too many; close a sequence, or use "
            "larger pages, layout='token' or a higher limit",
        ),
        (
            errors.Shortage(kind="slots", needed=1, missing=1),
            "no slot is free: close a sequence, or retire those that were closed",
        ),
    ],
)  # fmt: skip
def test_shortage_says_what_is_missing_and_what_would_free_it(
    error: errors.Shortage, message: str
) -> None:
    assert str(error) == message
