"""Card, driver, clocks and versions of this process, as every verdict carries them. It never changes a setting."""

from __future__ import annotations

import datetime
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pynvml

from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.schema import Hardware


def versions() -> dict[str, str]:
    """Versions of python, torch, triton and this package, without importing them."""
    found = {"python": platform.python_version()}
    for name in ("torch", "triton", "tritonsmith"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def note_software(hardware: Hardware) -> Hardware:
    """The card with the versions of Triton and PyTorch of this machine."""
    found = versions()
    return hardware.model_copy(update={name: found.get(name, "") for name in ("triton", "torch")})


def name_card(device: str | None = None) -> str:
    """What tells a card from all others: its UUID, else the name that CUDA_VISIBLE_DEVICES gives it (None: the first that it shows)."""
    try:
        return str(pynvml.nvmlDeviceGetUUID(_first_card(device)))
    except pynvml.NVMLError:
        return device or os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"


def _first_card(device: str | None = None) -> Any:
    """The management library's handle of the card that CUDA calls the first, or of the one that `device` names.

    The library numbers all cards, also those that CUDA_VISIBLE_DEVICES hides.
    """
    pynvml.nvmlInit()
    shown = (os.environ.get("CUDA_VISIBLE_DEVICES", "") if device is None else device).split(",")[0].strip()
    if shown.startswith("GPU-"):
        return pynvml.nvmlDeviceGetHandleByUUID(shown)
    return pynvml.nvmlDeviceGetHandleByIndex(int(shown) if shown.isdigit() else 0)


def clocks() -> dict[str, int | str]:
    """Processor and memory clock in MHz, temperature, power in watts and throttle reasons; empty without a card."""
    try:
        card = _first_card()
        return {
            "sm_mhz": pynvml.nvmlDeviceGetClockInfo(card, pynvml.NVML_CLOCK_SM),
            "memory_mhz": pynvml.nvmlDeviceGetClockInfo(card, pynvml.NVML_CLOCK_MEM),
            "temperature_c": pynvml.nvmlDeviceGetTemperature(card, pynvml.NVML_TEMPERATURE_GPU),
            "power_w": pynvml.nvmlDeviceGetPowerUsage(card) // 1000,
            "throttle": hex(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(card)),
        }
    except pynvml.NVMLError:
        return {}


def card_memory_in_use() -> int | None:
    """Bytes of the first card's memory that all processes together hold; None without a card."""
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(_first_card()).used)
    except pynvml.NVMLError:
        return None


def card_in_nvml() -> dict[str, str]:
    """Name and driver of the first card as the management library sees them; empty when there is none."""
    try:
        card = _first_card()
        return {"name": str(pynvml.nvmlDeviceGetName(card)), "driver": str(pynvml.nvmlSystemGetDriverVersion())}
    except pynvml.NVMLError:
        return {}


def describe_environment(hardware: Hardware) -> dict[str, Any]:
    """What a reader needs to repeat a verdict."""
    return {
        "card": hardware.name if hardware.present else None,
        "target": hardware.key,
        "nvml": card_in_nvml(),
        "versions": versions(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def present_card() -> Hardware | None:
    """The card of this machine, with the table's figures where it is known; None without CUDA. Imports torch."""
    import torch  # noqa: PLC0415 - only a process that may hold a CUDA context asks

    if not torch.cuda.is_available():
        return None
    found = torch.cuda.get_device_properties(0)
    for card in CARDS.values():
        if found.name.startswith(card.name):
            return card.model_copy(update={"present": True, "processors": found.multi_processor_count, "l2_bytes": found.L2_cache_size})
    capability = found.major * 10 + found.minor
    nearest = min(CARDS.values(), key=lambda card: abs(card.capability - capability))
    return nearest.model_copy(
        update={
            "key": found.name.lower().replace(" ", "-"), "name": found.name, "present": True, "capability": capability,
            "processors": found.multi_processor_count, "l2_bytes": found.L2_cache_size, "memory_bytes": found.total_memory,
            "shared_per_processor": found.shared_memory_per_multiprocessor,
            "shared_per_block": getattr(found, "shared_memory_per_block_optin", nearest.shared_per_block),
            "threads_per_processor": found.max_threads_per_multi_processor,
        }
    )  # fmt: skip
