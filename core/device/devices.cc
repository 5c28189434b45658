// SPDX-License-Identifier: Apache-2.0
#include "device/devices.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "config/names.h"
#include "device/cpu_provider.h"
#include "device/status_error.h"

namespace anyattn::device {
namespace {

// In the order "auto" tries them.
constexpr uint32_t kAutoOrder[] = {ANYATTN_DEVICE_CUDA, ANYATTN_DEVICE_HIP, ANYATTN_DEVICE_CPU};

// Bad facts of a provider must not reach a format string or a comparison of texts.
void fill_texts(anyattn_device_facts& facts) {
  if (!facts.architecture) facts.architecture = "unknown";
  if (!facts.name) facts.name = "unnamed";
}

}  // namespace

std::string kind_name(uint32_t kind) {
  for (const config::DeviceKindName& known : config::kDeviceKinds) {
    if (known.kind == kind) return std::string(known.name);
  }
  return "kind " + std::to_string(kind);
}

Devices::Devices(const anyattn_host* host) { add(cpu_provider(), host, nullptr, "built in"); }

bool Devices::add(const anyattn_device_provider& provider, const anyattn_host* host, std::shared_ptr<const void> keep,
                  const std::string& origin) {
  const std::lock_guard lock(mutex_);
  if (find(provider.device_kind)) return false;
  auto kind = std::make_unique<Kind>();
  kind->provider = provider;
  kind->host = host;
  kind->keep = std::move(keep);
  kind->origin = origin;
  ErrorBuffer why;
  uint32_t count = 0;
  int32_t status = ANYATTN_INTERNAL;
  try {
    status = provider.enumerate(host, &count, why.get());
    for (uint32_t ordinal = 0; status == ANYATTN_OK && ordinal < count; ++ordinal) {
      anyattn_device_facts facts{};
      facts.struct_size = ANYATTN_DEVICE_FACTS_SIZE;
      status = provider.facts(host, static_cast<int32_t>(ordinal), &facts, why.get());
      fill_texts(facts);
      if (status == ANYATTN_OK) kind->facts.push_back(facts);
    }
  } catch (...) {
    kind->why_none = "the provider of " + origin + " let an exception out";
  }
  if (kind->facts.empty() && kind->why_none.empty()) {
    kind->why_none = why.text(status == ANYATTN_OK ? "the provider found none" : "the provider failed without a text");
  }
  // Providers begin with their kind, which every text here names already.
  const std::string prefix = kind_name(provider.device_kind) + ": ";
  if (kind->why_none.starts_with(prefix)) kind->why_none.erase(0, prefix.size());
  kinds_.push_back(std::move(kind));
  return true;
}

void Devices::explain_missing(uint32_t kind, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  reasons_.emplace_back(kind, reason);
}

const Devices::Kind* Devices::find(uint32_t kind) const {
  const auto at =
      std::find_if(kinds_.begin(), kinds_.end(), [&](const auto& entry) { return entry->provider.device_kind == kind; });
  return at == kinds_.end() ? nullptr : at->get();
}

std::string Devices::why_missing(uint32_t kind) const {
  if (const Kind* known = find(kind)) return known->why_none;
  for (const auto& [reason_kind, reason] : reasons_) {
    if (reason_kind == kind) return reason;
  }
  return "no loaded plugin brings a device provider for " + kind_name(kind);
}

const anyattn_device_provider* Devices::provider(uint32_t kind) const {
  const std::lock_guard lock(mutex_);
  const Kind* known = find(kind);
  return known ? &known->provider : nullptr;
}

bool Devices::is_present(DeviceId id) const {
  const std::lock_guard lock(mutex_);
  const Kind* known = find(id.kind);
  return known && id.ordinal >= 0 && static_cast<size_t>(id.ordinal) < known->facts.size();
}

const anyattn_device_provider& Devices::require(DeviceId id) const {
  const std::lock_guard lock(mutex_);
  const Kind* known = find(id.kind);
  if (!known || known->facts.empty()) {
    throw StatusError(ANYATTN_NOT_FOUND, "device " + kind_name(id.kind) + ": not present: " + why_missing(id.kind));
  }
  if (id.ordinal < 0 || static_cast<size_t>(id.ordinal) >= known->facts.size()) {
    throw StatusError(ANYATTN_NOT_FOUND, "device " + kind_name(id.kind) + ":" + std::to_string(id.ordinal) +
                                             ": no such device; there are " + std::to_string(known->facts.size()) +
                                             ", numbered from 0");
  }
  return known->provider;
}

const anyattn_device_facts& Devices::facts(DeviceId id) const {
  require(id);
  const std::lock_guard lock(mutex_);
  return find(id.kind)->facts[static_cast<size_t>(id.ordinal)];
}

DeviceId Devices::resolve(const std::string& text) const {
  if (text == "auto") {
    const std::lock_guard lock(mutex_);
    for (const uint32_t kind : kAutoOrder) {
      const Kind* known = find(kind);
      if (known && !known->facts.empty()) return {kind, 0};
    }
    throw StatusError(ANYATTN_NOT_FOUND, "device auto: none of cuda, hip, cpu is present");
  }
  const size_t colon = text.find(':');
  const std::optional<uint32_t> named = config::device_kind_from_name(text.substr(0, colon));
  DeviceId id{named.value_or(0), 0};
  bool well_formed = named.has_value();
  if (colon != std::string::npos) {
    const char* end = text.data() + text.size();
    const auto [rest, failure] = std::from_chars(text.data() + colon + 1, end, id.ordinal);
    well_formed = well_formed && failure == std::errc() && rest == end && id.ordinal >= 0;
  }
  if (!well_formed) {
    throw StatusError(ANYATTN_INVALID_ARGUMENT, "device \"" + text +
                                                    "\": not a device; write auto, cpu, cuda or hip, with an "
                                                    "ordinal after a colon where there are several, as in cuda:0");
  }
  require(id);
  return id;
}

std::vector<anyattn_device_facts> Devices::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<anyattn_device_facts> all;
  for (const auto& kind : kinds_) all.insert(all.end(), kind->facts.begin(), kind->facts.end());
  return all;
}

std::vector<MissingKind> Devices::missing() const {
  const std::lock_guard lock(mutex_);
  std::vector<MissingKind> missing;
  for (const uint32_t kind : kAutoOrder) {
    const Kind* known = find(kind);
    if (!known || known->facts.empty()) missing.push_back({kind_name(kind), why_missing(kind)});
  }
  return missing;
}

}  // namespace anyattn::device
