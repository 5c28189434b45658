// SPDX-License-Identifier: Apache-2.0
#include "compiler.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <vector>

#include "code_cache.h"
#include "library.h"
#include "portable_source.h"
#include ANYATTN_PORTABLE_RUNTIME

namespace anyattn::portable {
namespace {

// The run-time compiler for a device's driver.
const RunTimeCompiler& compiler(const anyattn_device_facts& facts) {
  static std::mutex mutex;
  static std::map<uint32_t, RunTimeCompiler> of_driver;
  const std::lock_guard lock(mutex);
  const auto [at, fresh] = of_driver.try_emplace(facts.driver_version);
  if (fresh) at->second = open_compiler(vendor::kCompiler, facts.driver_version);
  return at->second;
}

std::string name(const char* function) { return std::string(vendor::kCompilerPrefix) + function; }

// Every field in the order of shared.h.
std::string words_of(const Config& c) {
  char cap[40];
  std::snprintf(cap, sizeof cap, "%af", static_cast<double>(c.soft_cap));
  return text(c.kind, ",", c.rows, ",", c.out_kind, ",", c.head_size, ",", c.head_size_v, ",", c.latent, ",", c.group, ",",
              c.num_kv_heads, ",", c.block_size, ",", c.causality, ",", c.window_left, ",", c.window_right, ",", c.alibi, ",",
              c.sinks, ",", c.mm_prefix, ",", c.invariant, ",", c.cp_world, ",", c.cp_rank, ",", c.cp_interleave, ",", c.matrix,
              ",", cap);
}
std::string words_of(const Tile& t) {  // without slots: one code for devices of every size
  return text(t.rows, ",", t.keys, ",", t.columns, ",", t.warps_m, ",", t.warps_n, ",", t.m_tiles, ",", t.share, ",",
              t.keep_query, ",", t.stages, ",", t.heads, ",", t.tokens, ",", t.head_units, ",", t.min_query, ",", t.max_query,
              ",", 0, ",", t.min_tiles, ",", t.slack, ",", t.cut_tiles, ",", t.groups);
}

// merge_states reads nothing of a problem: its program is one for all, compiled for this one.
Specialisation any_problem() {
  Specialisation spec;
  Config& cfg = spec.cfg;
  Tile& tile = spec.lanes[0];
  cfg.head_size = cfg.head_size_v = cfg.block_size = tile.rows = tile.keys = tile.columns = tile.tokens = 16;
  cfg.group = cfg.num_kv_heads = cfg.cp_world = cfg.cp_interleave = 1;
  tile.warps_m = tile.warps_n = tile.m_tiles = tile.stages = tile.heads = tile.head_units = tile.min_tiles = 1;
  return spec;
}

std::string compile(const Library& library, const std::string& program, const std::string& architecture) {
  using Program = void*;
  const auto create = library.get<int(Program*, const char*, const char*, int, const char* const*, const char* const*)>(
      name("CreateProgram").c_str());
  const auto build = library.get<int(Program, int, const char* const*)>(name("CompileProgram").c_str());
  const auto log_size = library.get<int(Program, size_t*)>(name("GetProgramLogSize").c_str());
  const auto log_text = library.get<int(Program, char*)>(name("GetProgramLog").c_str());
  const auto code_size = library.get<int(Program, size_t*)>(vendor::kCodeSize);
  const auto code_bytes = library.get<int(Program, char*)>(vendor::kCode);
  const auto destroy = library.get<int(Program*)>(name("DestroyProgram").c_str());

  Program handle = nullptr;
  constexpr int kFiles = static_cast<int>(std::size(kSourceNames));
  if (create(&handle, program.c_str(), "portable", kFiles, kSourceTexts, kSourceNames) != 0)
    throw Error(ANYATTN_INTERNAL, "the run-time compiler takes no program");
  std::vector<const char*> options(std::begin(vendor::kOptions), std::end(vendor::kOptions));
  options.push_back(architecture.c_str());
  const int status = build(handle, static_cast<int>(options.size()), options.data());
  size_t size = 0;
  std::string result;
  if (status == 0) {
    code_size(handle, &size);
    result.resize(size);
    code_bytes(handle, result.data());
  } else {
    log_size(handle, &size);
    result.resize(size);
    log_text(handle, result.data());
  }
  destroy(&handle);
  if (status != 0)
    throw Error(ANYATTN_UNSUPPORTED, "the run-time compiler refuses the kernels (", status, "): ", result.c_str());
  return result;
}

CodeCache cache_of(const Host& host) { return CodeCache(host.option("cache", "auto")); }

// Code that was built with the plugin: the folder `prebuilt` beside its file, where a copy of the host's has a link.
CodeCache prebuilt() {
  static const std::filesystem::path own = [] {
    Dl_info info{};
    const bool known = dladdr(reinterpret_cast<const void*>(&program_text), &info) && info.dli_fname;
    return std::filesystem::path(known ? info.dli_fname : "").parent_path();
  }();
  std::error_code absent;
  const std::string folder = own.empty() ? std::string() : std::filesystem::canonical(own / "prebuilt", absent).string();
  return CodeCache(folder.empty() ? "off" : folder, 0);
}

// Everything that decides about the code, but for the compiler. Its number of multiprocessors is no part of it.
std::string key_of(const anyattn_device_facts& facts, const std::string& text_of_program) {
  std::string key = text(vendor::kName, " ", vendor::architecture_option(facts), "\n", text_of_program);
  for (const char* option : vendor::kOptions) key += text(option, "\n");
  for (const char* file : kSourceTexts) key += file;
  return key;
}

}  // namespace

std::vector<Program> programs_of(const Specialisation& spec) {
  std::vector<Program> programs;
  for (int lane = 0; lane < spec.num_lanes; ++lane) {
    programs.push_back({lane, Program::kAttend});
    if (spec.direct) continue;
    if (!spec.cfg.invariant) programs.push_back({lane, Program::kMergeParts});
    programs.push_back({lane, Program::kPlan});
  }
  if (spec.direct) return programs;
  programs.push_back({0, Program::kRows});
  programs.push_back({0, Program::kMergeStates});
  return programs;
}

std::string program_text(const Specialisation& of_problem, const Program& program) {
  const Specialisation spec = program.part == Program::kMergeStates ? any_problem() : of_problem;
  return text("#define AA_MIN_BLOCKS ", spec.min_blocks[program.lane], "\n#define AA_PART ", static_cast<int>(program.part),
              "\n#define AA_DIRECT ", spec.direct,
              "\n#include \"types.h\"\n#include \"shared.h\"\n#include \"layout.h\"\nnamespace anyattn::portable {\nconstexpr "
              "Config cfg{",
              words_of(spec.cfg), "};\nconstexpr Tile tile{", words_of(spec.lanes[program.lane]),
              "};\n#include \"vendor.h\"\n#include \"attend.inl\"\n#include \"plan.inl\"\n#include \"memory.inl\"\n",
              "#include \"entries.inl\"\n}\n");
}

std::string why_not_compile(const Host& host, const anyattn_device_facts& facts) {
  if (host.option("compiler", "auto") == "off") return "off";
  const RunTimeCompiler& found = compiler(facts);
  if (!found.library) return text("none: ", found.why);
  const std::string why = vendor::why_not_compiled(Library(found.library), facts);
  return why.empty() ? why : text(compiler_version_text(found.version), ", ", why);
}

bool has_code(const Host& host, const anyattn_device_facts& facts, const Specialisation& spec, int lanes) {
  for (const Program& program : programs_of(spec)) {
    if (program.lane >= lanes) continue;
    const std::string key = key_of(facts, program_text(spec, program));
    if (!cache_of(host).has(key) && !prebuilt().has(key)) return false;
  }
  return true;
}

std::string machine_code(const Host& host, const anyattn_device_facts& facts, const Specialisation& spec,
                         const Program& program) {
  const std::string words = program_text(spec, program), key = key_of(facts, words);
  const CodeCache cache = cache_of(host);
  const std::string why_not = why_not_compile(host, facts);
  const bool compiles = why_not.empty();
  // What is kept is the compiler's version, then the code. Another compiler compiles anew; who may not compile takes any.
  const uint32_t version = compiles ? compiler(facts).version : 0;
  for (const CodeCache& from : {cache, prebuilt()}) {
    const std::string kept = from.find(key);
    uint32_t compiled_by = 0;
    if (kept.size() <= sizeof compiled_by) continue;
    std::memcpy(&compiled_by, kept.data(), sizeof compiled_by);
    if (!compiles || version == compiled_by) return kept.substr(sizeof compiled_by);
  }
  if (!compiles)
    throw Error(ANYATTN_UNSUPPORTED, "no machine code for this problem",
                program.lane > 0 ? text("'s queries longer than ", spec.lanes[0].max_query) : "", ", and ",
                "the run-time compiler is ", why_not,
                "; install one, or take the code along in the folder that the option cache names");
  const std::string code = compile(Library(compiler(facts).library), words, vendor::architecture_option(facts));
  cache.keep(key, std::string(reinterpret_cast<const char*>(&version), sizeof version) + code);
  return code;
}

}  // namespace anyattn::portable
