// SPDX-License-Identifier: Apache-2.0
// What moves rows: the cache's store, the gather of an MLA context, the merge of an engine's partial results.

// The latent part of a record, or its rope part.
AA_FN void store_record(char* to, const char* from, int part) {
  for (int i = row_group(); part == 0 && i < kRecordLatent / kRecordTile; i += row_groups())
    encode_scaled(to + i * kRecordTile, to + kRecordScales + 4 * i, from, i * kRecordTile, kRecordTile, 0x1p-126f);
  for (int e = thread(); part == 1 && e < cfg.head_size - kRecordLatent; e += num_threads())
    store_any(kBF16, to + kRecordRope, e, load_any(cfg.kind, from, e));
}

AA_FN void store_rows(const StoreArgs& a, int program, int programs) {
  for (int t = program; t < a.num_tokens; t += programs) {
    const int64_t slot = a.slots[t];
    if (slot < 0 || (uint64_t)(slot / cfg.block_size) >= a.num_blocks) continue;
    char* block = a.base + slot / cfg.block_size * a.block_bytes;
    for (int p = 0; p < 2; ++p) {
      char* to = block + a.byte_offset[p] + slot % cfg.block_size * a.token_bytes[p];
      const char* from = a.from[p].data + (int64_t)t * a.from[p].token_bytes;
      if (cfg.rows == cfg.kind && !a.scales[p]) {
        copy_rows(to, a.head_bytes[p], from, a.from[p].head_bytes, a.heads[p], a.size[p]);
      } else if (cfg.rows == kRowsRecord) {
        store_record(to, from, p);
      } else {
        for (int head = row_group(); head < a.heads[p]; head += row_groups())
          encode_row(to + head * a.head_bytes[p], from + head * a.from[p].head_bytes, a.size[p],
                     call_scale(a.scales[p], a.scale_stride, head));
      }
    }
  }
}

AA_FN void gather_rows(const GatherArgs& a, int program, int programs) {
  const BatchView& batch = *a.kept;
  for (int row = program; row < a.num_rows; row += programs) {
    const int req = lower_bound(a.row_start, a.num_reqs + 1, row + 1) - 1;
    if (req >= a.num_reqs) continue;
    const int position = a.context_start[req] + row - a.row_start[req];
    const int block = batch.block_table[(int64_t)req * batch.table_stride + position / cfg.block_size];
    if ((uint64_t)(int64_t)block >= a.num_blocks) continue;
    const char* from = a.base + (int64_t)block * a.block_bytes + (int64_t)(position % cfg.block_size) * a.token_bytes;
    char *latent = a.to[0].data + (int64_t)row * a.to[0].token_bytes, *rope = a.to[1].data + (int64_t)row * a.to[1].token_bytes;
    if (cfg.rows == cfg.kind && !a.scale) {
      copy_rows(latent, 0, from, 0, 1, a.size[0]);
      copy_rows(rope, 0, from + (int64_t)a.size[0] * kElementBytes, 0, 1, a.size[1]);
      continue;
    }
    for (int e = thread(); e < cfg.head_size; e += num_threads()) {
      const float value = stored_value(from, 0, e) * call_scale(a.scale, 0, 0);
      if (e < a.size[0])
        store_any(cfg.kind, latent, e, value);
      else
        store_any(cfg.kind, rope, e - a.size[0], value);
    }
  }
}

// A part whose lse is -inf (or +inf) is not read. Logarithms in double: 10,000 + ln 2 must keep its digits.
AA_FN void merge_rows(const MergeArgs& a, int program, int programs) {
  const double none = -(double)kInfinity;
  for (int64_t pair = program; pair < (int64_t)a.num_tokens * a.num_heads; pair += programs) {
    const int64_t token = pair / a.num_heads, head = pair % a.num_heads;
    double top = none, total = 0;
    for (int i = 0; i < a.num_states; ++i) {
      const StateView& state = a.states[i];
      const double lse = state.lse[token * state.lse_token_stride + head * state.lse_head_stride] * state.factor;
      if (lse != -none && !(lse <= top)) top = lse;
    }
    double weight[kMaxStates];
    for (int i = 0; i < a.num_states; ++i) {
      const StateView& state = a.states[i];
      const double lse = state.lse[token * state.lse_token_stride + head * state.lse_head_stride] * state.factor;
      weight[i] = lse == none || lse == -none ? 0 : exp_of(lse - top);
      total += weight[i];
    }
    barrier();  // lse may be overwritten in place
    for (int e = thread(); e < a.head_size; e += num_threads()) {
      float value = 0;
      for (int i = 0; i < a.num_states; ++i) {
        if (weight[i] == 0) continue;
        const Rows& rows = a.states[i].out;
        value += (float)(weight[i] / total) *
                 load_any(a.part_kind, rows.data + token * rows.token_bytes + head * rows.head_bytes, e);
      }
      store_any(a.out_kind, a.out.data + token * a.out.token_bytes + head * a.out.head_bytes, e, value);
    }
    if (a.lse && thread() == 0)
      a.lse[token * a.lse_token_stride + head * a.lse_head_stride] =
          (float)(top == none ? none : (top + log_of(total)) * a.lse_factor);
    barrier();
  }
}
