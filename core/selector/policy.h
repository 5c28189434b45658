// SPDX-License-Identifier: Apache-2.0
// The policy as the selector reads it: which must holds for a problem, in which order backends are asked, which names are known.
// Included by the selector only. Asks no backend.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "selector/selector.h"

namespace anyattn::selector {

// A name that must answer, and what said so.
struct Must {
  std::string name;
  std::string origin;
};

// The nearest of call, flag, environment, first matching rule, selection.backend, for each part of the problem: decode and
// prefill where its phase is both (rules for a part and rules for both match), else twice its own phase.
struct Musts {
  std::optional<Must> decode;
  std::optional<Must> prefill;
  bool any() const { return decode || prefill; }
  bool same() const { return decode.has_value() == prefill.has_value() && (!decode || decode->name == prefill->name); }
};
Musts find_musts(const std::string& call, const config::Config& config, const OwnedProblem& problem, uint32_t device_kind);

// Names to ask on a device kind without a must: selection.order, then what is registered or failed beside it, by plugin id
// and name.
struct Ordered {
  std::string name;
  bool listed = false;    // in selection.order
  bool profiled = false;  // stands before one that the order puts before it (profile.h)
};
std::vector<Ordered> ask_order(const config::Config& config, const registry::View& view, uint32_t device_kind);

// Every name of selection.order, a sidecar or an opened plugin, of any device kind, sorted.
std::vector<std::string> known_names(const config::Config& config, const registry::View& view);

}  // namespace anyattn::selector
