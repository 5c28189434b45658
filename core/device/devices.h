// SPDX-License-Identifier: Apache-2.0
// The devices of one runtime: a provider per kind, facts per device, and what "auto" means. Included by memory and the API.
// Providers of plugins are handed in by the API; nothing here loads anything.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "anyattn/device.h"

namespace anyattn::device {

// "cuda"; "kind 77" for a number without a name.
std::string kind_name(uint32_t kind);

struct DeviceId {
  uint32_t kind = ANYATTN_DEVICE_CPU;
  int32_t ordinal = 0;
};

struct MissingKind {
  std::string kind;
  std::string reason;
};

class Devices {
 public:
  // `host` is lent to the CPU's provider and outlives this object.
  explicit Devices(const anyattn_host* host);

  // Adds the provider of another kind; `keep` holds its plugin. False: the kind has a provider already, the first stays.
  bool add(const anyattn_device_provider& provider, const anyattn_host* host, std::shared_ptr<const void> keep,
           const std::string& origin);
  // Why a known kind has no provider, for texts: "plugin X: could not be opened: ...".
  void explain_missing(uint32_t kind, const std::string& reason);

  // Null where the kind has no provider. Lives as long as this object.
  const anyattn_device_provider* provider(uint32_t kind) const;
  bool is_present(DeviceId id) const;
  // As provider(), NOT_FOUND with the reason where there is none or the ordinal does not exist.
  const anyattn_device_provider& require(DeviceId id) const;
  // Facts live as long as this object.
  const anyattn_device_facts& facts(DeviceId id) const;
  // "auto" is the first present of cuda, hip, cpu; "cpu" is "cpu:0". INVALID_ARGUMENT or NOT_FOUND as StatusError.
  DeviceId resolve(const std::string& text) const;

  std::vector<anyattn_device_facts> all() const;
  std::vector<MissingKind> missing() const;

 private:
  struct Kind {
    anyattn_device_provider provider{};
    const anyattn_host* host = nullptr;
    std::shared_ptr<const void> keep;
    std::string origin;
    std::string why_none;                     // where it has no device
    std::vector<anyattn_device_facts> facts;  // one a device
  };
  const Kind* find(uint32_t kind) const;
  std::string why_missing(uint32_t kind) const;

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Kind>> kinds_;
  std::vector<std::pair<uint32_t, std::string>> reasons_;
};

}  // namespace anyattn::device
