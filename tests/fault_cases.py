"""Ways in which candidate code can break what judges it, each with the statuses that its one verdict may have."""

from dataclasses import dataclass

TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) + x.square()


def get_inputs():
    return [torch.randn(4, 33)]


def get_init_inputs():
    return []
"""
_KERNEL = '''
import atexit, ctypes, faulthandler, os, resource, shutil, signal, subprocess, sys, threading, time
import torch
import triton
import triton.language as tl
from torch import nn

MARK = "{mark}"
{at_import}

@triton.jit
def relu_square(x, out, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    value = tl.load(x + place, mask=inside)
    {in_kernel}
    tl.store(out + place, tl.maximum(value, 0.0) + value * value, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        {in_forward}
        out = torch.empty_like(x)
        relu_square[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
        return out
'''
MARK = "tritonsmith-fault-4d1f"
"""Part of the name of every file that a fault tries to write outside its scratch folder."""


@dataclass(frozen=True)
class Fault:
    """One fault: text at module level, first in forward, or in the kernel; and what the verdict may say."""

    name: str
    expect: str
    forward: str = "pass"
    module: str = ""
    kernel: str = "pass"

    @property
    def source(self) -> str:
        """The candidate's text."""
        parts = {"mark": MARK, "at_import": self.module.strip(), "in_kernel": self.kernel.strip()}
        return _KERNEL.format(in_forward=self.forward.strip().replace("\n", "\n        "), **parts)


HONEST = Fault("honest", "ok").source
_DEAD = "crashed"
_ENDED = "crashed runtime_error timeout"
_ANY = "ok crashed runtime_error timeout launch_error"

FAULTS = (
    Fault("segfault", _DEAD, "ctypes.string_at(0)"),
    Fault("exit", _DEAD, "os._exit(0)"),
    Fault("exit_while_imported", "crashed compile_error", module="os._exit(7)"),
    Fault("abort", _DEAD, "os.abort()"),
    # The first process of a pid namespace is spared by signals from inside it.
    Fault("kills_itself", "ok crashed", "os.kill(os.getpid(), signal.SIGKILL)"),
    Fault("stops_itself", "ok timeout", "os.kill(os.getpid(), signal.SIGSTOP)"),
    Fault("kills_everybody", _ANY, "try: os.kill(-1, signal.SIGKILL)\nexcept OSError: pass"),
    Fault("endless_loop", "timeout", "while True: pass"),
    Fault("endless_loop_that_ignores_signals", "timeout", "for n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n"
          "    except (OSError, ValueError): pass\nwhile True: time.sleep(1)"),
    Fault("endless_loop_in_the_kernel", "timeout launch_error", kernel="while tl.load(x) == tl.load(x): value += 1.0"),
    Fault("huge_allocation", _ENDED, "torch.ones(1 << 38)"),
    Fault("memory_until_the_end", _ENDED, "kept = []\nwhile True: kept.append(bytearray(1 << 28))"),
    Fault("fork_bomb", _ANY, "for _ in range(100000):\n    try: os.fork()\n    except OSError: time.sleep(0.01)\n"
          "    if time.process_time() > 2: os._exit(0)"),
    Fault("thread_bomb", _ANY, "for _ in range(10000):\n    try: threading.Thread(target=time.sleep, args=(600,)).start()\n"
          "    except RuntimeError: break"),
    Fault("flood_of_stdout", _ANY, "for _ in range(300): os.write(1, b'x' * (1 << 20))"),
    Fault("flood_of_stderr", _ANY, "while True: os.write(2, b'y' * (1 << 20))"),
    Fault("flood_of_prints_at_import", _ANY, module="for n in range(200000): print('z' * 200)"),
    Fault("deep_recursion", _ENDED, "sys.setrecursionlimit(10**9)\ndef down(n): return down(n + 1) + 1\ndown(0)"),
    Fault("c_stack_overflow", _ENDED, "sys.setrecursionlimit(10**9)\nclass A:\n    __getattr__ = lambda self, n: getattr(self, n + 'x')\nA().x"),
    Fault("deletes_what_it_can", _ANY, "for folder in (os.getcwd(), os.path.dirname(__file__), os.path.dirname(torch.__file__), "
          "os.path.dirname(os.path.dirname(os.getcwd()))):\n    shutil.rmtree(folder, ignore_errors=True)"),
    Fault("locks_its_scratch", _ANY, "os.makedirs('a/b/c', exist_ok=True)\nos.chmod('a/b', 0)\nos.chmod('.', 0)"),
    Fault("fills_the_disk", _ANY, "for n in range(64):\n    try: open(f'{MARK}-{n}', 'wb').write(bytes(1 << 26))\n    except OSError: break"),
    Fault("many_small_files", _ANY, "for n in range(100000):\n    try: open(f'f{n}', 'w').close()\n    except OSError: break"),
    Fault("writes_elsewhere", "ok", "for folder in ('/tmp', '/var/tmp', '/dev/shm', os.path.dirname(__file__), '/', "
          "os.path.dirname(torch.__file__), os.path.dirname(os.getcwd())):\n    try: open(f'{folder}/{MARK}', 'w').close()\n"
          "    except OSError: pass"),
    Fault("closes_every_descriptor", "timeout crashed runtime_error", "os.closerange(0, 4096)"),
    Fault("daemon", "ok", "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        while True: time.sleep(1)\n    os._exit(0)"),
    Fault("children_that_wait", "ok", "for _ in range(3): subprocess.Popen(['sleep', '600'], start_new_session=True)"),
    Fault("raises_when_deleted", "ok", "class A:\n    def __del__(self): raise RuntimeError('gone')\nA()"),
    Fault("raises_at_exit", "ok", "atexit.register(lambda: 1 / 0)\natexit.register(lambda: time.sleep(600))"),
    Fault("huge_message", "runtime_error", "raise ValueError('m' * (1 << 27))"),
    Fault("message_that_raises", _ENDED, "class Odd(Exception):\n    def __str__(self): raise RuntimeError('no words')\nraise Odd"),
    Fault("message_that_never_ends", "timeout crashed", "class Odd(Exception):\n    def __str__(self):\n        while True: pass\nraise Odd"),
    Fault("keyboard_interrupt", _ENDED, "raise KeyboardInterrupt"),
    Fault("system_exit", _ENDED, "raise SystemExit(0)"),
    Fault("system_exit_while_imported", "compile_error crashed", module="raise SystemExit(0)"),
    Fault("lowers_its_limits", _ANY, "resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"),
    Fault("fault_handler_and_masks", "ok", "faulthandler.enable()\nfaulthandler.dump_traceback_later(0.01, repeat=True)\n"
          "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))"),
    Fault("alarm", _ANY, "signal.setitimer(signal.ITIMER_REAL, 0.01)\ntime.sleep(0.05)"),
    Fault("changes_folder_and_mask", "ok", "os.chdir('/')\nos.umask(0o777)\nos.environ.clear()"),
    Fault("null_bytes_in_the_source", "compile_error crashed runtime_error", module="exec(chr(0))"),
)  # fmt: skip
ENDLESS_IMPORT = Fault("endless_import", "timeout", module="while True: pass")
