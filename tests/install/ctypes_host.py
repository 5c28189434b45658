#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A host in another language: opens a plugin with ctypes alone and runs one paged, causal attention call through it.

  ctypes_host.py FILE NAME    NAME: the backend expected in FILE

Structures are written out from the headers; the answer is compared with the formula of attention.h in Python's doubles.
"""
import ctypes as c
import math
import random
import sys

HEADS, KV_HEADS, SIZE, BLOCK, BLOCKS = 4, 2, 8, 4, 6
QUERY, SEQ = [3, 1], [7, 5]  # rows and keys of two requests
TABLE = [[4, 2], [1, 5]]
FLOAT32 = 2 | 32 << 8 | 1 << 16
P, U32, I32, U64, I64 = c.c_void_p, c.c_uint32, c.c_int32, c.c_uint64, c.c_int64


def struct(*fields):
    """A struct of the interface; struct_size, where there is one, is the end of the last field."""
    made = type("Struct", (c.Structure,), {"_fields_": list(fields)})

    def create(**values):
        one = made(**values)
        last = getattr(made, fields[-1][0])
        if fields[0][0] == "struct_size":
            one.struct_size = last.offset + last.size
        return one
    create.type = made
    return create


error_t = struct(("text", c.c_char_p), ("capacity", U32), ("length", U32), ("status", I32), ("reserved", U32))
tensor_t = struct(("data", P), ("device_type", I32), ("device_id", I32), ("ndim", I32), ("code", c.c_uint8), ("bits", c.c_uint8),
                  ("lanes", c.c_uint16), ("shape", P), ("strides", P), ("byte_offset", U64))
cpu_t = struct(("struct_size", U32), ("arch", U32), ("isa", U64), ("num_cores", U32), ("l1", U32), ("l2", U32), ("l3", U32))
LOG = c.CFUNCTYPE(None, P, I32, c.c_char_p)
RANGE = c.CFUNCTYPE(None, P, U64, U64, U32)
PARALLEL = c.CFUNCTYPE(I32, P, U64, U64, RANGE, P)
host_t = struct(("struct_size", U32), ("abi_version", U32), ("context", P), ("log", LOG), ("parallel_for", PARALLEL),
                ("num_workers", U32), ("num_options", U32), ("option_stride", U32), ("reserved", U32), ("options", P), ("cpu", P))
facts_t = struct(("struct_size", U32), ("kind", U32), ("ordinal", I32), ("major", U32), ("minor", U32), ("cores", U32),
                 ("warp", U32), ("shared", U32), ("memory", U64), ("l2", U64), ("features", U64), ("driver", U32),
                 ("runtime", U32), ("compiler", U32), ("reserved", U32), ("architecture", c.c_char_p), ("name", c.c_char_p))
PROBLEM = ["attention_type", "key_source", "phase", "num_q_heads", "num_kv_heads", "head_size", "head_size_v", "q_dtype",
           "out_dtype", "block_size"]
problem_t = struct(("struct_size", U32), ("num_feature_words", U32), ("features", P), *[(name, U32) for name in PROBLEM],
                   ("kv_cache_dtype", c.c_char_p))
report_t = struct(("struct_size", U32), ("supported", U32), ("block_size", U32), ("multiple", U32), ("num_sizes", U32),
                  ("sizes", U32 * 8), ("query_lengths", U32), ("threshold", U32), ("graph_level", U32), ("lse_bases", U32))
reason_t = struct(("struct_size", U32), ("id", U32), ("field", c.c_char_p), ("wanted", c.c_char_p), ("allowed", c.c_char_p),
                  ("hint", c.c_char_p))
ADD = c.CFUNCTYPE(None, P, c.POINTER(reason_t.type))
sink_t = struct(("struct_size", U32), ("reserved", U32), ("context", P), ("add", ADD))
plane_t = struct(("struct_size", U32), ("role", U32), ("dtype", U32), ("ndim", U32), ("dims", I64 * 5), ("strides", I64 * 5),
                 ("byte_offset", U64))
spec_t = struct(("struct_size", U32), ("block_size", U32), ("block_bytes", U64), ("alignment", U32), ("num_planes", U32),
                ("plane_stride", U32), ("reserved", U32), ("planes", P), ("name", c.c_char_p), ("digest", U64))
SPEC = c.CFUNCTYPE(None, P, c.POINTER(spec_t.type))
cache_t = struct(("struct_size", U32), ("reserved", U32), ("base", P), ("stride", U64), ("num_blocks", U64), ("spec", P))
limits_t = struct(("struct_size", U32), ("reqs", U32), ("tokens", U32), ("query_len", U32), ("seq_len", U32), ("blocks", U32))
memory_t = struct(("struct_size", U32), ("reserved", U32), ("scratch", U64), ("persistent", U64), ("pinned", U64))
batch_t = struct(("struct_size", U32), ("num_reqs", U32), ("num_tokens", U32), ("max_query_len", U32), ("max_seq_len", U32),
                 ("shared_prefix_len", U32), ("query_start_loc", P), ("seq_lens", P), ("block_table", P), ("stride", I64))
T = tensor_t.type
update_t = struct(("struct_size", U32), ("reserved", U32), ("k", T), ("v", T), ("kv_c", T), ("k_pe", T), ("slot_mapping", T),
                  ("k_scale", T), ("v_scale", T), ("cache", P), ("stream", P))
forward_t = struct(("struct_size", U32), ("lse_base", U32), ("softmax_scale", c.c_double), ("q", T), ("k", T), ("v", T),
                   ("sinks", T), ("alibi", T), ("q_scale", T), ("k_scale", T), ("v_scale", T), ("out_scale", T),
                   ("out_block_scales", T), ("sparse", T), ("cache", P), ("out", T), ("lse", T), ("scratch", P), ("stream", P))
SLOTS = ["supports", "kv_cache_spec", "impl_create", "impl_destroy", "memory", "warmup", "metadata_create", "metadata_update",
         "metadata_destroy", "kv_cache_update", "forward"]
backend_t = struct(("struct_size", U32), ("kind", U32), ("name", c.c_char_p), ("description", c.c_char_p),
                   *[(name, P) for name in SLOTS])
plugin_t = struct(("struct_size", U32), ("abi_version", U32), ("abi_min", U32), ("abi_max", U32), ("id", c.c_char_p),
                  ("vendor", c.c_char_p), ("version", c.c_char_p), ("license", c.c_char_p), ("num_backends", U32),
                  ("num_providers", U32), ("backends", P))


class Tensor:
    """Floats or int64 in aligned memory of ours, with the view that crosses the boundary."""

    def __init__(self, shape, code=2, bits=32, values=None):
        count = math.prod(shape)
        kind = c.c_float if code == 2 else I64
        self.raw = (c.c_char * (count * c.sizeof(kind) + 64))()
        start = -c.addressof(self.raw) % 64
        self.values = (kind * count).from_buffer(self.raw, start)
        self.values[:] = values if values else [0] * count
        self.shape = (I64 * len(shape))(*shape)
        self.strides = (I64 * len(shape))(*[math.prod(shape[i + 1:]) for i in range(len(shape))])
        self.view = tensor_t(data=c.addressof(self.values), device_type=1, ndim=len(shape), code=code, bits=bits, lanes=1,
                             shape=c.addressof(self.shape), strides=c.addressof(self.strides))


def check(status, error, what):
    if status != 0:
        sys.exit(f"{what}: status {status}: {error.text.decode()}")


def call(table, slot, *arguments):
    address = getattr(table, slot)
    if slot.endswith("_destroy"):
        return c.CFUNCTYPE(None, P)(address)(*arguments)
    text = c.create_string_buffer(512)
    error = error_t(text=c.cast(text, c.c_char_p), capacity=512)
    function = c.CFUNCTYPE(I32, *[P] * (len(arguments) + 1))
    passed = [c.cast(a, P) if isinstance(a, c._CFuncPtr) else a if isinstance(a, (int, type(None))) else c.addressof(a)
              for a in arguments]
    if slot == "metadata_create":
        function = c.CFUNCTYPE(I32, P, P, U32, P, P, P, P)
    check(function(address)(*passed, c.addressof(error)), error, slot)


def main():
    path, wanted = sys.argv[1:]
    random.seed(5)
    log = LOG(lambda context, level, text: None)

    def serial(context, count, grain, function, argument):
        if count:
            function(argument, 0, count, 0)
        return 0
    parallel = PARALLEL(serial)
    cpu = cpu_t(arch=1, num_cores=1)
    host = host_t(abi_version=1, log=log, parallel_for=parallel, num_workers=1, cpu=c.addressof(cpu))
    facts = facts_t(kind=1, cores=1, warp=1, architecture=b"x86-64", name=b"ctypes")

    entry = c.CDLL(path).anyattn_plugin_entry_v0
    entry.argtypes, entry.restype = [U32, U32, P, P, P], I32
    plugin = c.POINTER(plugin_t.type)()
    text = c.create_string_buffer(512)
    error = error_t(text=c.cast(text, c.c_char_p), capacity=512)
    check(entry(1, 1, c.addressof(host), c.addressof(plugin), c.addressof(error)), error, "entry")
    tables = c.cast(plugin.contents.backends, c.POINTER(c.POINTER(backend_t.type)))
    backend = tables[0].contents
    if backend.name.decode() != wanted:
        sys.exit(f"the backend is {backend.name.decode()}, wanted {wanted}")

    reasons = []
    add = ADD(lambda context, reason: reasons.append(reason.contents.field.decode()))
    sink = sink_t(add=add)
    features = U64(0)
    problem = problem_t(num_feature_words=1, features=c.addressof(features), num_q_heads=HEADS, num_kv_heads=KV_HEADS,
                        head_size=SIZE, head_size_v=SIZE, q_dtype=FLOAT32, out_dtype=FLOAT32, block_size=BLOCK,
                        kv_cache_dtype=b"float32")
    features.value = 1 << 63
    report = report_t()
    call(backend, "supports", host, facts, problem, sink, report)
    if report.supported or reasons != ["features"] and reasons != ["feature_63"]:
        sys.exit(f"a feature nobody knows is answered with {report.supported} and {reasons}")
    features.value = 0
    report = report_t()
    call(backend, "supports", host, facts, problem, sink, report)
    if not report.supported or report.block_size != BLOCK:
        sys.exit(f"supports says {report.supported}, block size {report.block_size}: {reasons}")

    kept = []

    def accept(context, spec):  # copies, with its planes
        one = spec.contents
        planes = c.string_at(one.planes, one.num_planes * one.plane_stride)
        kept.append((one.block_bytes, one.num_planes, one.plane_stride, planes, one.digest, one.alignment))
    call(backend, "kv_cache_spec", host, facts, problem, SPEC(accept), None)
    block_bytes, num_planes, plane_stride, planes, digest, alignment = kept[0]
    planes = c.create_string_buffer(planes, len(planes))
    spec = spec_t(block_size=BLOCK, block_bytes=block_bytes, alignment=alignment, num_planes=num_planes,
                  plane_stride=plane_stride, planes=c.addressof(planes), name=b"copied", digest=digest)
    impl, metadata = P(), P()
    call(backend, "impl_create", host, facts, problem, spec, c.addressof(impl))
    limits = limits_t(reqs=2, tokens=4, query_len=3, seq_len=8, blocks=2)
    memory = memory_t()
    call(backend, "memory", impl.value, limits, memory)
    block = [Tensor([max(1, (n + 3) // 4)]) for n in (memory.scratch, memory.persistent, memory.pinned)]
    level = U32()
    call(backend, "warmup", impl.value, limits, None, c.addressof(block[0].values), level)
    call(backend, "metadata_create", impl.value, limits, 0, c.addressof(block[1].values), c.addressof(block[2].values),
         c.addressof(metadata))

    # Every key of both requests goes into the cache first; queries are the last rows.
    keys = [Tensor([n, KV_HEADS, SIZE], values=[random.uniform(-1, 1) for _ in range(n * KV_HEADS * SIZE)]) for n in SEQ]
    values = [Tensor([n, KV_HEADS, SIZE], values=[random.uniform(-1, 1) for _ in range(n * KV_HEADS * SIZE)]) for n in SEQ]
    store = Tensor([BLOCKS, block_bytes // 4], values=[math.nan] * (BLOCKS * block_bytes // 4))
    cache = cache_t(base=c.addressof(store.values), stride=block_bytes, num_blocks=BLOCKS, spec=c.addressof(spec))
    for r, length in enumerate(SEQ):
        slots = [TABLE[r][j // BLOCK] * BLOCK + j % BLOCK for j in range(length)]
        mapping = Tensor([length], 0, 64, slots)
        call(backend, "kv_cache_update", impl.value, update_t(k=keys[r].view, v=values[r].view, slot_mapping=mapping.view,
                                                              cache=c.addressof(cache)))
    rows = sum(QUERY)
    starts, lens, table = (I32 * 3)(0, QUERY[0], rows), (I32 * 2)(*SEQ), (I32 * 4)(*TABLE[0], *TABLE[1])
    batch = batch_t(num_reqs=2, num_tokens=rows, max_query_len=3, max_seq_len=8, query_start_loc=c.addressof(starts),
                    seq_lens=c.addressof(lens), block_table=c.addressof(table), stride=2)
    call(backend, "metadata_update", metadata.value, batch, None)
    q = Tensor([rows, HEADS, SIZE], values=[random.uniform(-1, 1) for _ in range(rows * HEADS * SIZE)])
    out = Tensor([rows, HEADS, SIZE], values=[math.nan] * (rows * HEADS * SIZE))
    call(backend, "forward", impl.value, metadata.value,
         forward_t(softmax_scale=0.5, q=q.view, out=out.view, cache=c.addressof(cache), scratch=c.addressof(block[0].values)))

    worst = 0.0
    for t in range(rows):
        r = 0 if t < QUERY[0] else 1
        visible = SEQ[r] - QUERY[r] + (t - starts[r]) + 1
        for h in range(HEADS):
            at = [(j * KV_HEADS + h // (HEADS // KV_HEADS)) * SIZE for j in range(visible)]
            mine = q.values[(t * HEADS + h) * SIZE:][:SIZE]
            weights = [math.exp(0.5 * sum(a * b for a, b in zip(mine, keys[r].values[o:o + SIZE]))) for o in at]
            for d in range(SIZE):
                exact = sum(w * values[r].values[o + d] for w, o in zip(weights, at)) / sum(weights)
                got = out.values[(t * HEADS + h) * SIZE + d]
                worst = max(worst, abs(got - exact) if not math.isnan(got) else math.inf)
    # The bound of reference.h for float32 throughout: scores up to 4, |v| and |out| up to 1.
    if not worst <= 2 ** -24 * (1 + 4) + 2 ** -24:
        sys.exit(f"out is off by {worst}")
    call(backend, "metadata_destroy", metadata.value)
    call(backend, "impl_destroy", impl.value)
    print(f"{plugin.contents.id.decode()} {wanted}: out within {worst:.1e}")


if __name__ == "__main__":
    main()
