// SPDX-License-Identifier: Apache-2.0
// The walk over backends of one device for one phase: asks each, keeps every answer. Included by the selector only.
// Makes no choice between phases and writes no error.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "selector/ask.h"
#include "selector/policy.h"

namespace anyattn::selector {

// A backend that took the problem.
struct Taken {
  registry::OpenBackend backend;
  Answer answer;
  std::string origin;
};

class Walk {
 public:
  Walk(const config::Config& config, registry::Registry& registry, const Request& request)
      : config_(config), registry_(registry), request_(request), view_(registry.view()) {}

  // More to ask of a backend that took the problem; a reason turns it down.
  using Check = std::function<std::optional<Reason>(const Taken&)>;

  // Asks the backends of the device in order and appends each to candidates(). The first that takes the problem is the result
  // (with a must: only that one can be) and its candidate is chosen; with ask_all the others are asked too, else they are not.
  std::optional<Taken> run(const OwnedProblem& problem, const anyattn_device_facts& device, const std::optional<Must>& must,
                           bool ask_all, const Check& check = {});

  const registry::View& view() const { return view_; }
  std::vector<Candidate>& candidates() { return candidates_; }

 private:
  // Why automatic choices pass over the backend; empty: they do not.
  std::string passed_over(const registry::Key& key) const;
  // Appends what is known of the name and, where a backend took the problem, returns it.
  std::optional<Taken> ask_name(const std::string& name, const OwnedProblem& problem, const anyattn_device_facts& device,
                                bool is_must, const Check& check);

  const config::Config& config_;
  registry::Registry& registry_;
  const Request& request_;
  const registry::View view_;
  std::vector<Candidate> candidates_;
};

}  // namespace anyattn::selector
