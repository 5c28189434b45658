// SPDX-License-Identifier: Apache-2.0
// A kind's layers as captured graphs: one group in graph mode, and a graph of all layers for each number of rows.
// Included by plain_layers, which says what a graph holds.
#pragma once

#include <map>

#include "anyattn/streams.hpp"
#include "serving/layer_kind.h"

namespace anyattn::tools {

class StepGraphs {
 public:
  // Steps of at most max_tokens rows, max_query_len of a request: launches follow from limits, so decode steps want graphs of
  // their own. Throws Failure where the backend gives this group another cache than `spec_digest`.
  StepGraphs(const KindSpec& spec, const LayerOptions& options, uint32_t max_tokens, uint32_t max_query_len,
             uint64_t spec_digest);

  bool takes(const StepBatch& batch) const;
  // Rows of the graph that takes a step of so many: the next power of two, at most max_tokens.
  uint32_t rows_for(uint32_t num_tokens) const;

  Group& group() { return group_; }
  const anyattn_limits& limits() const { return limits_; }
  size_t size() const { return graphs_.size(); }

  // The graph of so many rows; `body` queues what it holds, the first time.
  template <class Body>
  const DeviceGraph& graph(const Place& place, uint32_t rows, Body&& body) {
    const auto found = graphs_.find(rows);
    if (found != graphs_.end()) return found->second;
    return graphs_.emplace(rows, DeviceGraph(*place.runtime, place.device, place.stream, body)).first->second;
  }

 private:
  anyattn_limits limits_;
  Group group_;
  std::map<uint32_t, DeviceGraph> graphs_;
};

}  // namespace anyattn::tools
