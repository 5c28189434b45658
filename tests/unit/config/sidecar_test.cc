// SPDX-License-Identifier: Apache-2.0
#include "config/sidecar.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "config/names.h"
#include "unit/config/config_fixture.h"

using anyattn::config::parse_sidecar;
using anyattn::config::Sidecar;
using anyattn::test::holds;
using anyattn::test::refusal;

namespace {

// As anyattn_add_plugin writes it.
const std::string kGood = R"(# Describes anyattn_acme.so to a host that has not opened it.
sidecar: 1
id: com.acme.attn
vendor: "Acme: attention"
version: "1.10"
license: "LicenseRef-Acme"
abi: {min: "0.1", max: "0.12"}
backends:
  - {name: ACME_ATTN, device: cpu}
  - {name: ACME_ATTN, device: cuda}
providers: [cuda]
needs_cpu: [avx2, fma]
architectures: [sm_80, sm_90a]
)";

std::string with(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("sidecar_reads_what_the_build_function_writes") {
  const Sidecar sidecar = parse_sidecar(kGood, "a.yaml");
  CHECK(sidecar.path == "a.yaml");
  CHECK(sidecar.id == "com.acme.attn");
  CHECK(sidecar.vendor == "Acme: attention");
  CHECK(sidecar.version == "1.10");
  CHECK(sidecar.license == "LicenseRef-Acme");
  CHECK(sidecar.abi_min == ANYATTN_ABI_VERSION(0, 1));
  CHECK(sidecar.abi_max == ANYATTN_ABI_VERSION(0, 12));
  REQUIRE(sidecar.backends.size() == 2);
  CHECK(sidecar.backends[0].name == "ACME_ATTN");
  CHECK(sidecar.backends[0].device_kind == ANYATTN_DEVICE_CPU);
  CHECK(sidecar.backends[1].device_kind == ANYATTN_DEVICE_CUDA);
  CHECK(sidecar.providers == std::vector<uint32_t>{ANYATTN_DEVICE_CUDA});
  CHECK(sidecar.needs_cpu == (ANYATTN_CPU_AVX2 | ANYATTN_CPU_FMA));
  CHECK(sidecar.architectures == std::vector<std::string>{"sm_80", "sm_90a"});
}

TEST_CASE("sidecar_versions_stay_text_without_quotes") {
  CHECK(parse_sidecar(with("\"1.10\"", "1.10"), "a.yaml").version == "1.10");
  CHECK(parse_sidecar(with("\"0.12\"", "0.12"), "a.yaml").abi_max == ANYATTN_ABI_VERSION(0, 12));
}

TEST_CASE("sidecar_mistakes_name_line_key_and_what_is_allowed") {
  struct Case {
    std::string from, to, place, part;
  };
  for (const Case& c : std::vector<Case>{
           {"sidecar: 1\n", "", "a.yaml:2:1: sidecar: ", "is missing"},
           {"sidecar: 1", "sidecar: 2", "a.yaml:2:10: sidecar: ", "written for version 2 of a sidecar"},
           {"sidecar: 1", "sidecar: one", "a.yaml:2:10: sidecar: ", "got the text \"one\""},
           {"id: com", "identity: com", "a.yaml:3:1: identity: ", "unknown key"},
           {"id: com.acme.attn\n", "", "a.yaml:2:1: id: ", "is missing"},
           {"com.acme.attn", "\"../../etc\"", "a.yaml:3:5: id: ", "a plugin id of words joined by dots"},
           {"\"1.10\"", "\"\"", "a.yaml:5:10: version: ", "a text that is not empty"},
           {"min: \"0.1\"", "min: \"1\"", "a.yaml:7:12: abi.min: ", "MAJOR.MINOR"},
           {"min: \"0.1\"", "min: \"0.01\"", "a.yaml:7:12: abi.min: ", "MAJOR.MINOR"},
           {"min: \"0.1\"", "min: \"0.70000\"", "a.yaml:7:12: abi.min: ", "MAJOR.MINOR"},
           {"max: \"0.12\"", "max: \"0.0\"", "a.yaml:7:24: abi.max: ", "is 0.0, which is below abi.min 0.1"},
           {", max: \"0.12\"", "", "a.yaml:7:6: abi.max: ", "is missing"},
           {"abi: {min: \"0.1\", max: \"0.12\"}", "abi: \"0.1\"",
            "a.yaml:7:6: abi: ", "wanted: a mapping with the keys min, max"},
           {"device: cuda}", "device: gpu}", "a.yaml:10:31: backends[1].device: ", "allowed: cpu, cuda, hip"},
           {"device: cuda}", "device: cpu}", "a.yaml:10:5: backends[1]: ", "ACME_ATTN on cpu is listed twice"},
           {"name: ACME_ATTN, device: cuda", "name: acme, device: cuda", "a.yaml:10:12: backends[1].name: ", "capital letters"},
           {"[avx2, fma]", "[avx2, fam]", "a.yaml:12:19: needs_cpu[1]: ", "did you mean fma?"},
           {"[avx2, fma]", "avx2", "a.yaml:12:12: needs_cpu: ", "wanted: a list, as in [avx2, fma]"},
           {"[cuda]", "[cuda, cuda]", "a.yaml:11:19: providers[1]: ", "listed twice"}}) {
    const std::string said = refusal([&] { parse_sidecar(with(c.from, c.to), "a.yaml"); });
    CAPTURE(c.to);
    CAPTURE(said);
    CHECK(said.rfind(c.place, 0) == 0);
    CHECK(holds(said, c.part));
  }
  CHECK(holds(refusal([] { parse_sidecar("", "a.yaml"); }), "a.yaml: the file is empty; a sidecar begins with sidecar: 1"));
  CHECK(holds(refusal([] { parse_sidecar(std::string(70000, '#'), "a.yaml"); }), "is larger than 65536 bytes"));
  CHECK(holds(refusal([] { anyattn::config::read_sidecar("/nonexistent/a.yaml"); }), "cannot be opened"));
}

TEST_CASE("sidecar_of_a_plugin_that_brings_nothing_is_refused") {
  const std::string nothing =
      "sidecar: 1\nid: a.b\nvendor: v\nversion: v\nlicense: MIT\nabi: {min: 0.1, max: 0.1}\nbackends: []\n";
  CHECK(holds(refusal([&] { parse_sidecar(nothing, "a.yaml"); }), "a.yaml:7:11: backends: the plugin brings neither"));
  CHECK(parse_sidecar(nothing + "providers: [hip]\n", "a.yaml").providers[0] == ANYATTN_DEVICE_HIP);
}

TEST_CASE("names_of_device_kinds_go_both_ways") {
  using namespace anyattn::config;
  for (const DeviceKindName& entry : kDeviceKinds) {
    CHECK(device_kind_from_name(entry.name) == entry.kind);
    CHECK(device_kind_name(entry.kind) == entry.name);
  }
  CHECK_FALSE(device_kind_from_name("CUDA").has_value());
  CHECK(device_kind_name(77) == "unknown");
}
