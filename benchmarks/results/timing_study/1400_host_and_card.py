"""Where does the time of a short call go: host forward, sync, or the card?"""
import ctypes, os, sys, time
import multiprocessing as mp
import multiprocessing.sharedctypes
import importlib.util

def load(per_unit):
    spec = importlib.util.spec_from_file_location("chain", "benchmarks/timing/tasks/chain.py"); m = importlib.util.module_from_spec(spec); spec.loader.exec_module(m)
    m.per_unit = per_unit
    return m

def worker(bell, out, cpu, per_unit, n):
    import torch
    if cpu is not None: os.sched_setaffinity(0, {cpu})
    m = load(per_unit)
    model = m.Model().cuda()
    xs = [torch.rand(1024, 4096, device="cuda") for _ in range(3)]
    cuda = ctypes.PyDLL("libcuda.so.1")
    buf = torch.zeros(100 << 20, dtype=torch.uint8, device="cuda")
    fill, wait = cuda.cuMemsetD8_v2, cuda.cuCtxSynchronize
    a, v, c = ctypes.c_uint64(buf.data_ptr()), ctypes.c_ubyte(1), ctypes.c_size_t(100 << 20)
    s, e = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    import gc
    with torch.no_grad():
        for x in xs: model(x)
        torch.cuda.synchronize(); gc.collect(); gc.freeze(); gc.disable()
        bell[8] = 1
        last = 0; rows = []
        while True:
            while bell[0] == last: pass
            last = bell[0]
            cmd = bell[1]
            if cmd == 9: break
            if cmd == 1:
                fill(a, v, c); wait()
            elif cmd == 2:
                t0 = time.perf_counter(); s.record(); y = model(xs[last % 3]); t1 = time.perf_counter(); e.record(); torch._C._cuda_synchronize(); t2 = time.perf_counter()
                rows.append((t1 - t0, t2 - t1, s.elapsed_time(e), os.sched_getcpu() if hasattr(os, "sched_getcpu") else -1))
                bell[3] = 1
            elif cmd == 3:  # flush behind, no wait
                fill(a, v, c); t0 = time.perf_counter(); s.record(); y = model(xs[last % 3]); t1 = time.perf_counter(); e.record(); torch._C._cuda_synchronize(); t2 = time.perf_counter()
                rows.append((t1 - t0, t2 - t1, s.elapsed_time(e), -1))
            bell[2] = last
    out.put(rows)

def ring(b, cmd, k):
    b[1] = cmd; t = time.perf_counter(); b[0] = k
    while b[2] != k: pass
    return time.perf_counter() - t

def q(xs):
    xs = sorted(xs); n = len(xs)
    return " ".join(f"{1e6*xs[int(f*(n-1))]:7.1f}" for f in (0, .1, .25, .5, .75, .9))

def run(label, cpus, per_unit, n=300, load_oracle=True, behind=False):
    ctx = mp.get_context("spawn")

    bells = []
    for _ in range(2):
        raw = mp.sharedctypes.RawArray("Q", 16); bells.append(raw)
    qs = [ctx.Queue() for _ in range(2)]
    ps = [ctx.Process(target=worker, args=(bells[i], qs[i], cpus[i + 1], per_unit, n)) for i in range(2)]
    [p.start() for p in ps]
    while not all(b[8] for b in bells): time.sleep(0.01)
    old = os.sched_getaffinity(0)
    if cpus[0] is not None: os.sched_setaffinity(0, {cpus[0]})
    wall = [[], []]; k = 1
    import torch
    x = torch.rand(1024, 4096, device="cuda")
    for i in range(n):
        for j in ((0, 1) if i % 2 == 0 else (1, 0)):
            if load_oracle:
                y = x.clone(); y.mul_(1.0); torch.cuda.synchronize()
            if not behind:
                k += 1; ring(bells[j], 1, k)
            k += 1; wall[j].append(ring(bells[j], 3 if behind else 2, k))
    for b in bells: b[1] = 9; b[0] = k + 1
    rows = [qq.get() for qq in qs]
    [p.join() for p in ps]
    os.sched_setaffinity(0, old)
    for j in range(2):
        print(f"{label:34} p{j} wall {q(wall[j])} | fwd {q([r[0] for r in rows[j]])} | sync {q([r[1] for r in rows[j]])} | dev {q([r[2]/1e3 for r in rows[j]])}", flush=True)

if __name__ == "__main__":
    mine = sorted(os.sched_getaffinity(0)); base = mine[0]
    os.system("lscpu | grep -iE 'model name|thread|core|socket|numa|mhz'; nvidia-smi topo -m | head -12; cat /sys/devices/system/cpu/cpu0/topology/thread_siblings_list; nvidia-smi --query-gpu=clocks.sm,clocks.mem,pstate --format=csv")
    for pu in (1, 40):
        run(f"pinned {pu}", (base + 2, base + 7, base + 12), pu)
        run(f"pinned no oracle work {pu}", (base + 2, base + 7, base + 12), pu, load_oracle=False)
        run(f"neighbours {pu}", (base + 2, base + 3, base + 4), pu)
        run(f"free {pu}", (None, None, None), pu)
        run(f"behind flush pinned {pu}", (base + 2, base + 7, base + 12), pu, behind=True)
        run(f"pinned again {pu}", (base + 2, base + 7, base + 12), pu)
    os.system("grep -E '^cpu ' /proc/stat; nvidia-smi --query-gpu=clocks.sm,clocks.mem,pstate,temperature.gpu --format=csv")
