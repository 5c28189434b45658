# SPDX-License-Identifier: Apache-2.0
"""The C API of runtime.h and kv_pool.h as far as one model with one kind of layers needs it: ctypes, numpy and DLPack.

A numpy array crosses the boundary as the DLTensor it exports: anyattn_tensor has the same bytes.
"""
import ctypes as c

P, U32, I32, U64, I64, F64 = c.c_void_p, c.c_uint32, c.c_int32, c.c_uint64, c.c_int64, c.c_double
FLOAT32 = 2 | 32 << 8 | 1 << 16
CPU = 1


class Tensor(c.Structure):
    _fields_ = [("data", P), ("device_type", I32), ("device_id", I32), ("ndim", I32), ("code", c.c_uint8),
                ("bits", c.c_uint8), ("lanes", c.c_uint16), ("shape", c.POINTER(I64)), ("strides", c.POINTER(I64)),
                ("byte_offset", U64)]


def struct(name, *fields):
    """A struct of the interface; struct_size, where there is one, is the end of the last field."""
    made = type(name, (c.Structure,), {"_fields_": list(fields)})
    last = getattr(made, fields[-1][0])

    def create(**values):
        one = made(**values)
        if fields[0][0] == "struct_size":
            one.struct_size = last.offset + last.size
        return one
    return create


def words(kind, names):
    return [(name, kind) for name in names.split()]


error_t = struct("Error", ("text", P), *words(U32, "capacity length"), ("status", I32), ("reserved", U32))
runtime_options_t = struct("RuntimeOptions", *words(U32, "struct_size num_threads"), *words(c.c_char_p, "config backend log"))
problem_t = struct("Problem", *words(U32, "struct_size num_feature_words"), ("features", P),
                   *words(U32, "attention_type key_source phase num_q_heads num_kv_heads head_size head_size_v q_dtype "
                               "out_dtype block_size"), ("kv_cache_dtype", c.c_char_p),
                   *words(U32, "kv_lora_rank nope_dim rope_dim v_head_dim"), *words(I32, "window_left window_right"),
                   ("soft_cap", F64), *words(U32, "chunk_size top_k cp_world cp_rank cp_interleave out_block graph_level"))
limits_t = struct("Limits", *words(U32, "struct_size max_num_reqs max_num_tokens max_query_len max_seq_len max_blocks"))
group_options_t = struct("GroupOptions", *words(U32, "struct_size metadata_mode"), *words(P, "problem limits"),
                         *words(c.c_char_p, "device backend label"), ("stream", P))
group_info_t = struct("GroupInfo", ("struct_size", U32), ("device_kind", U32), ("device_ordinal", I32),
                      *words(U32, "is_mla needs_split block_size decode_threshold graph_level query_lengths lse_bases"),
                      *words(c.c_char_p, "backend decode_backend plugin kv_cache_dtype label"), ("spec", P))
kv_group_t = struct("KvGroup", *words(U32, "struct_size num_layers block_size"), ("window_left", I32), ("spec", P),
                    ("label", c.c_char_p))
kv_pool_options_t = struct("KvPoolOptions", *words(U32, "struct_size num_groups group_stride device_kind"),
                           ("device_ordinal", I32), *words(U32, "max_num_reqs max_seq_len no_sharing"), ("groups", P),
                           *words(U64, "budget_bytes num_blocks"))
cache_t = struct("Cache", *words(U32, "struct_size reserved"), ("base", P), *words(U64, "stride num_blocks"), ("spec", P))
batch_t = struct("Batch", *words(U32, "struct_size num_reqs num_tokens max_query_len max_seq_len shared_prefix_len"),
                 *words(P, "query_start_loc seq_lens block_table"), ("block_table_stride", I64),
                 *words(P, "key_start_loc query_start_loc_host seq_lens_host causal mm_starts mm_ranges"))
update_t = struct("UpdateArgs", *words(U32, "struct_size reserved"), *words(Tensor, "k v kv_c k_pe slots k_scale v_scale"),
                  *words(P, "cache stream"))
forward_t = struct("ForwardArgs", *words(U32, "struct_size lse_base"), ("softmax_scale", F64),
                   *words(Tensor, "q k v sinks slopes q_scale k_scale v_scale out_scale out_block_scales sparse"),
                   ("cache", P), *words(Tensor, "out lse"), *words(P, "scratch stream"))

capsule_pointer = c.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype, capsule_pointer.argtypes = P, [c.py_object, c.c_char_p]


class View:
    """A numpy array as anyattn_tensor, through its DLPack export. Keeps what it points to."""

    def __init__(self, array):
        self.array, self.capsule = array, array.__dlpack__()
        self.tensor = Tensor.from_buffer_copy(c.string_at(capsule_pointer(self.capsule, b"dltensor"), c.sizeof(Tensor)))
        if not self.tensor.strides:  # DLPack lets compact arrays leave them out; here they are always present
            self.strides = (I64 * array.ndim)(*[s // array.itemsize for s in array.strides])
            self.tensor.strides = self.strides


class Attention:
    """Paged attention of `layers` equal layers for one request, all through the runtime."""

    def __init__(self, library, q_heads, kv_heads, head_size, layers, max_tokens, kv_cache_dtype="auto", threads=0, config=None):
        self.lib = c.CDLL(library)
        self.text = c.create_string_buffer(4096)
        self.error = error_t(text=c.addressof(self.text), capacity=len(self.text))
        self.runtime = self._create("anyattn_runtime_create",
                                    runtime_options_t(num_threads=threads, config=config.encode() if config else None,
                                                      log=b"warning"))
        self.scale = head_size**-0.5
        problem = problem_t(num_q_heads=q_heads, num_kv_heads=kv_heads, head_size=head_size, head_size_v=head_size,
                            q_dtype=FLOAT32, out_dtype=FLOAT32, kv_cache_dtype=kv_cache_dtype.encode())
        limits = limits_t(max_num_reqs=1, max_num_tokens=max_tokens, max_query_len=max_tokens, max_seq_len=max_tokens)
        self.group = self._create("anyattn_group_create", self.runtime,
                                  group_options_t(problem=c.addressof(problem), limits=c.addressof(limits), device=b"cpu"))
        self.info = group_info_t()
        self._call("anyattn_group_get_info", self.group, self.info)
        kv_group = kv_group_t(num_layers=layers, window_left=-1, spec=self.info.spec)
        blocks = -(-max_tokens // self.info.block_size)
        self.pool = self._create("anyattn_kv_pool_create", self.runtime,
                                 kv_pool_options_t(num_groups=1, group_stride=c.sizeof(kv_group), device_kind=CPU,
                                                   max_num_reqs=1, max_seq_len=max_tokens, groups=c.addressof(kv_group),
                                                   num_blocks=blocks))
        self.caches = [cache_t() for _ in range(layers)]
        for layer, cache in enumerate(self.caches):
            self._call("anyattn_kv_pool_layer_cache", self.pool, U32(0), U32(layer), cache)
        self.table = (I32 * blocks)()
        self.seq_len = 0

    def close(self):
        for name, handle in (("kv_pool", self.pool), ("group", self.group), ("runtime", self.runtime)):
            destroy = getattr(self.lib, f"anyattn_{name}_destroy")
            destroy.restype = None
            destroy(handle)

    def begin_step(self, token_ids):
        """This step's tokens behind those before: their blocks, their slots, and the metadata all layers share."""
        ids = (I32 * len(token_ids))(*token_ids)
        if self.seq_len == 0:
            self._call("anyattn_kv_pool_begin", self.pool, U64(0), ids, U32(len(ids)), U64(0), U32(0))
        else:
            self._call("anyattn_kv_pool_append", self.pool, U64(0), ids, U32(len(ids)))
        start, self.seq_len = self.seq_len, self.seq_len + len(ids)
        self._call("anyattn_kv_pool_reserve", self.pool, U64(0), U32(self.seq_len))
        self._call("anyattn_kv_pool_block_table", self.pool, U32(0), (U64 * 1)(0), U32(1), self.table, I64(len(self.table)))
        self.slots = (I64 * len(ids))()
        self._call("anyattn_kv_pool_slot_mapping", self.pool, U32(0), U64(0), U32(start), U32(len(ids)), self.slots)
        self.shape, self.stride = (I64 * 1)(len(ids)), (I64 * 1)(1)
        self.slot_tensor = Tensor(data=c.addressof(self.slots), device_type=CPU, ndim=1, code=0, bits=64, lanes=1,
                                  shape=self.shape, strides=self.stride)
        self.starts, self.lens = (I32 * 2)(0, len(ids)), (I32 * 1)(self.seq_len)
        batch = batch_t(num_reqs=1, num_tokens=len(ids), max_query_len=len(ids), max_seq_len=self.seq_len,
                        query_start_loc=c.addressof(self.starts), seq_lens=c.addressof(self.lens),
                        block_table=c.addressof(self.table), block_table_stride=len(self.table),
                        query_start_loc_host=c.addressof(self.starts), seq_lens_host=c.addressof(self.lens))
        self._call("anyattn_group_update", self.group, U32(0), batch, P())

    def attend(self, layer, q, k, v, out):
        """[tokens, heads, head_size] each, float32; k and v go into the cache first."""
        views = [View(array) for array in (q, k, v, out)]
        q, k, v, out = (view.tensor for view in views)
        cache = c.addressof(self.caches[layer])
        self._call("anyattn_group_kv_cache_update", self.group, update_t(k=k, v=v, slots=self.slot_tensor, cache=cache))
        self._call("anyattn_group_forward", self.group, U32(0), forward_t(softmax_scale=self.scale, q=q, cache=cache, out=out))

    def end_step(self):
        self._call("anyattn_kv_pool_commit", self.pool, U64(0), U32(self.seq_len))

    def _create(self, name, *arguments):
        handle = P()
        self._call(name, *arguments, handle)
        return handle

    # Structs and arrays go by reference, and so does what is written: handles yet empty, one number.
    def _call(self, name, *arguments):
        out = name.endswith(("_create", "_begin"))
        passed = [c.byref(a) if isinstance(a, c.Structure) or (out and i == len(arguments) - 1) else a
                  for i, a in enumerate(arguments)]
        status = getattr(self.lib, name)(*passed, c.byref(self.error))
        if status != 0:
            raise RuntimeError(f"{name}: {self.text.value.decode()}")
