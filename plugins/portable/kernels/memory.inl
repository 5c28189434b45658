// SPDX-License-Identifier: Apache-2.0
// What moves rows: the cache's store, the gather of an MLA context, the merge of an engine's partial results.

// Elements of the two parts of a token and head: k and v, or the latent part of a key and its rope.
AA_FN int part_size(int part) {
  if (cfg.latent) return part == 0 ? cfg.head_size_v : cfg.head_size - cfg.head_size_v;
  return part == 0 ? cfg.head_size : cfg.head_size_v;
}

AA_FN void store_token(const StoreArgs& a, int token) {
  const int64_t slot = a.slots[token], block = slot / cfg.block_size;
  if (slot < 0 || (uint64_t)block >= a.num_blocks) return;
  for (int p = 0; p < 2; ++p) {
    char* to = a.to[p].at(slot % cfg.block_size, 0) + block * a.block_bytes;
    const char* from = a.from[p].at(token, 0);
    if (cfg.rows == cfg.kind && !a.scales[p]) {
      copy_rows(to, a.to[p].head_bytes, from, a.from[p].head_bytes, cfg.num_kv_heads, part_size(p));
    } else if (cfg.rows == kRowsRecord) {
      encode_record(to, from, p);
    } else {
      for (int head = row_group(); head < cfg.num_kv_heads; head += row_groups())
        encode_row(to + head * a.to[p].head_bytes, from + head * a.from[p].head_bytes, part_size(p),
                   call_scale(a.scales[p], a.scale_stride, head));
    }
  }
}

AA_FN void gather_row(const GatherArgs& a, int row) {
  const BatchView& batch = *a.kept;
  const int req = lower_bound(a.row_start, a.num_reqs + 1, row + 1) - 1;
  if (req >= a.num_reqs) return;
  const int position = a.context_start[req] + row - a.row_start[req];
  const int64_t block = batch.block_table[(int64_t)req * batch.table_stride + position / cfg.block_size];
  if ((uint64_t)block >= a.num_blocks) return;
  const char* from = a.from.at(position % cfg.block_size, 0) + block * a.block_bytes;
  for (int p = 0; p < 2; ++p) {
    char* to = a.to[p].at(row, 0);
    const int first = p * cfg.head_size_v;
    if (cfg.rows == cfg.kind && !a.scale) {
      copy_rows(to, 0, from + first * kElementBytes, 0, 1, part_size(p));
    } else {
      for (int e = thread(); e < part_size(p); e += num_threads())
        store_any(cfg.kind, to, e, stored_value(from, 0, first + e) * call_scale(a.scale, 0, 0));
    }
  }
}

// A part whose lse is -inf (or +inf) is not read. Logarithms in double: 10,000 + ln 2 must keep its digits.
AA_FN void merge_row(const MergeArgs& a, int64_t token, int64_t head) {
  const double none = -(double)kInfinity;
  double weight[kMaxStates], top = none, total = 0;
  for (int i = 0; i < a.num_states; ++i) {
    weight[i] = *a.part_lse[i].at(token, head) * a.part_lse[i].factor;
    if (weight[i] != -none && !(weight[i] <= top)) top = weight[i];
  }
  for (int i = 0; i < a.num_states; ++i) {
    weight[i] = weight[i] == none || weight[i] == -none ? 0 : exp_of(weight[i] - top);
    total += weight[i];
  }
  for (int i = 0; i < a.num_states && total > 0; ++i) weight[i] /= total;
  barrier();  // lse may be overwritten in place
  for (int e = thread(); e < a.head_size; e += num_threads()) {
    float value = 0;
    for (int i = 0; i < a.num_states; ++i)
      if (weight[i] != 0) value += (float)weight[i] * load_any(a.part_kind, a.parts[i].at(token, head), e);
    store_any(a.out_kind, a.out.at(token, head), e, value);
  }
  if (a.lse.data && thread() == 0) *a.lse.at(token, head) = (float)(top == none ? none : (top + log_of(total)) * a.lse.factor);
}
