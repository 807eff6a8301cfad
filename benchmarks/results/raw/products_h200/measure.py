"""Times the author's default kernels of 16-bit products beside torch, in one run of at most 60 s on a card with 16 cores.

python measure.py [seconds]   (reads products.json, which write.py made; writes rows.json)
"""
import importlib.util, json, os, sys, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

HERE = Path(__file__).parent
OUT = Path(os.environ.get("OUT", "/tmp"))
WORK = Path("/tmp/products"); WORK.mkdir(exist_ok=True)
LIMIT = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
BEGUN = time.time()


def load(place, text):
    file = WORK / f"k{place}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(f"k{place}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelNew


def make(row, place):
    import torch
    m, n, k = row["shape"]
    dtype = getattr(torch, row["dtype"])
    torch.manual_seed(0)
    model = load(place, row["text"])().cuda()
    with torch.no_grad():
        for one in model.parameters():
            one.normal_(std=0.02)
    x = torch.randn(m, k, device="cuda", dtype=dtype)
    given = [x] + ([torch.randn(m, n, device="cuda", dtype=dtype)] if row["kind"] == "fused" else [])
    return model, given


def compile_row(job):
    place, row = job
    if time.time() - BEGUN > 0.6 * LIMIT:
        return place, "skipped: no time"
    try:
        import torch
        model, given = make(row, place)
        with torch.no_grad():
            model(*given)
        torch.cuda.synchronize()
        return place, ""
    except Exception as error:
        return place, repr(error)[:300]


def bench(call, torch):
    """Median milliseconds of 5 blocks of calls, behind a warm-up; a buffer of 256 MB is written between blocks."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record(); call(); end.record(); torch.cuda.synchronize()
    number = max(3, min(50, int(6.0 / max(begin.elapsed_time(end), 1e-3))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(number):
            call()
    times = []
    for _ in range(5):
        begin.record(); graph.replay(); end.record(); torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / number)
    return sorted(times)[2]


def main():
    rows = json.loads((HERE / "products.json").read_text())
    with ProcessPoolExecutor(12, mp_context=get_context("spawn")) as pool:
        errors = dict(pool.map(compile_row, enumerate(rows)))
    print(f"compiled {sum(not e for e in errors.values())} of {len(rows)} in {time.time() - BEGUN:.0f} s", flush=True)
    import torch
    import torch.nn.functional as F
    torch.set_grad_enabled(False)
    results, library, references = [], {}, {}
    for place, row in enumerate(rows):
        key = (*row["shape"], row["dtype"], row["kind"])
        if errors[place]:
            print("ERROR", row["kind"], row["shape"], row["dtype"], row["variant"], errors[place], flush=True)
            continue
        if time.time() - BEGUN > LIMIT:
            print("out of time at", place); break
        model, given = make(row, place)
        if row["kind"] == "gate":
            reference = lambda model=model, given=given: F.silu(F.linear(given[0], model.g.weight)) * F.linear(given[0], model.u.weight)
        elif row["kind"] == "fused":
            reference = lambda model=model, given=given: F.gelu(F.linear(given[0], model.l.weight, model.l.bias), approximate="tanh") + given[1]
        else:
            reference = lambda model=model, given=given: F.linear(given[0], model.l.weight)
        if key not in library:
            library[key] = bench(reference, torch)
            references[key] = reference, model, given
        got, right = model(*given).float(), reference().float()
        error = ((got - right).abs().max() / right.abs().max()).item()
        ms = bench(lambda: model(*given), torch)
        m, n, k = row["shape"]
        flops = 2e-9 * m * n * k * (2 if row["kind"] == "gate" else 1)
        results.append({key: row[key] for key in ("shape", "dtype", "kind", "variant", "form")} | {
            "ms": ms, "torch_ms": library[key], "share": library[key] / ms, "tflops": flops / ms, "error": error})
        r = results[-1]
        print(f"{m}x{n}x{k} {row['dtype'][:4]} {row['kind']:6s} {row['form']:22s} {row['variant']:45s} {ms:.4f} ms torch {library[key]:.4f} "
              f"share {r['share']:.2f} {r['tflops']:.0f} TFLOPS error {error:.1e}{' WRONG' if error > 0.02 else ''}", flush=True)
    (OUT / "rows.json").write_text(json.dumps(results))
    for key, (_, model, given) in references.items():
        if key[-1] == "plain" or time.time() - BEGUN > 0.85 * LIMIT:
            continue
        torch._dynamo.reset()
        if key[-1] == "gate":
            whole = lambda x, a, b: F.silu(F.linear(x, a)) * F.linear(x, b)
            arguments = given[0], model.g.weight, model.u.weight
        else:
            whole = lambda x, w, b, y: F.gelu(F.linear(x, w, b), approximate="tanh") + y
            arguments = given[0], model.l.weight, model.l.bias, given[1]
        try:
            inductor = bench(lambda call=torch.compile(whole, dynamic=False): call(*arguments), torch)
            own = {row["variant"]: inductor / row["ms"] for row in results if (*row["shape"], row["dtype"], row["kind"]) == key}
            print(*key, f"eager {library[key]:.4f} torch.compile {inductor:.4f} ms; torch.compile/own", {name: round(value, 2) for name, value in own.items()}, flush=True)
        except Exception as error:
            print("torch.compile failed", repr(error)[:200], flush=True)
    print(f"{time.time() - BEGUN:.0f} s")


if __name__ == "__main__":
    main()
