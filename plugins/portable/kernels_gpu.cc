// SPDX-License-Identifier: Apache-2.0
// The kernels on a device: loaded by prepare, then one driver call a launch. The caller has made the device current.
#include <algorithm>
#include <future>
#include <mutex>

#include "anyattn/device_status.hpp"
#include "compiler.h"
#include "kernels.h"
#include "library.h"
#include "vendor/layout.h"
#include ANYATTN_PORTABLE_RUNTIME

namespace anyattn::portable {
namespace {

using LaunchEx = int(const vendor::LaunchConfig*, void*, void**, void**);
struct Driver {
  int (*module_load)(void**, const void*) = nullptr;
  int (*module_unload)(void*) = nullptr;
  int (*get_function)(void**, void*, const char*) = nullptr;
  int (*set_attribute)(void*, int, int) = nullptr;
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**) = nullptr;
  LaunchEx* launch_ex = nullptr;
  void* error_string = nullptr;
};

// Throws where there is no driver.
const Driver& driver() {
  static const Driver table = [] {
    const Library library(vendor::kDriverLibraries);
    if (!library)
      throw Error(ANYATTN_UNSUPPORTED, "no driver (", library.why(), "); install one to use ", vendor::kName, " devices");
    Driver d;
    d.module_load = library.get<int(void**, const void*)>(vendor::kModuleLoad);
    d.module_unload = library.get<int(void*)>(vendor::kModuleUnload);
    d.get_function = library.get<int(void**, void*, const char*)>(vendor::kGetFunction);
    if (vendor::kSetAttribute) d.set_attribute = library.get<int(void*, int, int)>(vendor::kSetAttribute);
    d.launch =
        library.get<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**)>(
            vendor::kLaunch);
    if (vendor::kLaunchEx)
      d.launch_ex = reinterpret_cast<decltype(d.launch_ex)>(library.find(vendor::kLaunchEx));  // absent: no overlap
    d.error_string = library.find(vendor::kErrorString);
    return d;
  }();
  return table;
}

void check(int code, const char* what) {
  if (code != 0) throw Error(status_of_device_error(code), what, ": ", vendor::words_of(driver().error_string, code));
}

constexpr int kPlanThreads = 512, kRowThreads = 128;

struct Functions {
  void *attend = nullptr, *merge_parts = nullptr, *plan = nullptr;  // of a lane
};

template <class Args>
void launch(void* function, int programs, int threads, int shared, const Args& args, void* stream, const char* what) {
  if (!function) throw Error(ANYATTN_INVALID_ARGUMENT, what, " before warmup has loaded the kernels");
  void* parameters[] = {const_cast<void*>(static_cast<const void*>(&args))};
  check(driver().launch(function, static_cast<unsigned>(programs), 1, 1, static_cast<unsigned>(threads), 1, 1,
                        static_cast<unsigned>(shared), stream, parameters, nullptr),
        what);
}

// The same, allowed to begin while the launch before it drains.
template <class Args>
void launch_overlapping(LaunchEx* launch_ex, void* function, int programs, int threads, const Args& args, void* stream,
                        const char* what) {
  vendor::LaunchAttribute attribute{};
  attribute.id = vendor::kProgrammatic;
  attribute.value.allowed = 1;
  const vendor::LaunchConfig config{
      {static_cast<unsigned>(programs), 1, 1}, {static_cast<unsigned>(threads), 1, 1}, 0, stream, &attribute, 1};
  void* parameters[] = {const_cast<void*>(static_cast<const void*>(&args))};
  check(launch_ex(&config, function, parameters, nullptr), what);
}

}  // namespace

const char* const kTarget = vendor::kName;
const uint32_t kTargetDevice = vendor::kDeviceKind;

void check_target(const Host& host, const anyattn_device_facts& facts, Reasons& reasons) {
  if (!vendor::runs_on(facts))
    reasons.add(ANYATTN_REASON_DEVICE, "architecture", facts.architecture, text(vendor::kOldest, " or newer"));
  if (vendor::kUnproven && host.option("unproven", "refuse") != "allow")
    reasons.add(ANYATTN_REASON_OPTION, "unproven", "refuse", "allow", text(vendor::kUnproven, ": allow it to try"));
}

std::string not_run_yet(const anyattn_device_facts& facts) {
  return vendor::has_run(facts) ? "" : text("; no device of ", facts.architecture, " has run them yet");
}

void check_code(const Host& host, const anyattn_device_facts& facts, const Specialisation& spec, int lanes, Reasons& reasons) {
  const std::string why_not = why_not_compile(host, facts);
  if (why_not.empty() || has_code(host, facts, spec, lanes)) return;
  reasons.add(ANYATTN_REASON_COMPILER, "compiler_version", why_not, "a run-time compiler, or machine code of just this problem",
              "install one, or name a folder that a warm-up has filled in the option cache");
}

struct Kernels::Impl {
  Impl(const Host& of_host, const Specialisation& of_spec, const anyattn_device_facts& of_facts)
      : host(of_host), spec(of_spec), facts(of_facts), architecture(of_facts.architecture), programs(programs_of(of_spec)) {}

  Host host;
  Specialisation spec;
  anyattn_device_facts facts;
  std::string architecture;
  Functions lanes[kMaxLanes];
  void *store = nullptr, *gather = nullptr, *merge = nullptr;
  std::vector<void*> modules;
  std::vector<Program> programs;
  std::mutex mutex;            // of what follows
  int ready = 0, started = 0;  // lanes that are loaded; that are compiled or on their way
  struct Started {
    Program program;
    std::future<std::string> code;  // its thread reads what stands above
  };
  std::vector<Started> on_their_way;

  bool loads() const { return host.option("warmup", "load") != "compile"; }
  void begin(int count);
  bool prepare(int count);
  void load(const Program& program, const std::string& code);
};

Kernels::Kernels(const Host& host, const anyattn_device_facts& facts, const Specialisation& spec)
    : impl_(std::make_unique<Impl>(host, spec, facts)) {
  impl_->facts.architecture = impl_->architecture.c_str();
  impl_->facts.name = "";
}

Kernels::~Kernels() {
  for (void* module : impl_->modules) driver().module_unload(module);
}

void Kernels::Impl::begin(int count) {
  if (!loads()) count = spec.num_lanes;  // for a device that is not here: all that it may need
  for (const Program& program : programs) {
    if (program.lane < started || program.lane >= count) continue;
    on_their_way.push_back(
        {program, std::async(std::launch::async, [this, program] { return machine_code(host, facts, spec, program); })});
  }
  started = std::max(started, count);
}

bool Kernels::Impl::prepare(int count) {
  if (ready >= count) return true;
  if (loads()) driver();
  begin(count);
  const int lanes_started = started;
  auto programs_started = std::move(on_their_way);
  on_their_way.clear();
  started = ready;  // what fails begins anew
  for (Started& one : programs_started) {
    const std::string code = one.code.get();
    if (loads()) load(one.program, code);
  }
  if (!loads()) {
    if (!has_code(host, facts, spec, spec.num_lanes))
      throw Error(ANYATTN_INVALID_ARGUMENT,
                  "warmup: compile, but the folder of the option cache keeps nothing; name one that can be written");
    return false;
  }
  started = ready = lanes_started;
  return true;
}

void Kernels::begin(int lanes) {
  const std::lock_guard lock(impl_->mutex);
  impl_->begin(lanes);
}

bool Kernels::prepare(int lanes) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->prepare(lanes);
}

void Kernels::widen(int lanes) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->ready > 0) impl_->prepare(lanes);
}

void Kernels::Impl::load(const Program& program, const std::string& code) {
  void* module = nullptr;
  check(driver().module_load(&module, code.data()), "loading the kernels");
  modules.push_back(module);
  const auto find = [&](void** function, const char* symbol) {
    check(driver().get_function(function, module, symbol), symbol);
  };
  Functions& of = lanes[program.lane];
  if (program.part == Program::kAttend) {
    find(&of.attend, "portable_attend");
    if (driver().set_attribute)
      check(driver().set_attribute(of.attend, vendor::kMaxDynamicShared, shared_bytes(spec.cfg, spec.lanes[program.lane])),
            "shared memory");
  } else if (program.part == Program::kMergeParts) {
    find(&of.merge_parts, "portable_merge_parts");
  } else if (program.part == Program::kPlan) {
    find(&of.plan, "portable_plan");
  } else if (program.part == Program::kMergeStates) {
    find(&merge, "portable_merge");
  } else {
    find(&store, "portable_store");
    find(&gather, "portable_gather");
  }
}

void Kernels::plan(int lane, const PlanArgs& args, void* stream) const {
  launch(impl_->lanes[lane].plan, 1, kPlanThreads, 0, args, stream, "metadata_update");
}
void Kernels::attend(int lane, const AttendArgs& args, void*, void* stream) const {
  const Tile& tile = impl_->spec.lanes[lane];
  launch(impl_->lanes[lane].attend, tile.slots, launched_threads(impl_->spec.cfg, tile), shared_bytes(impl_->spec.cfg, tile),
         args, stream, "forward");
}
void Kernels::merge_parts(int lane, const AttendArgs& args, void* stream) const {
  void* function = impl_->lanes[lane].merge_parts;
  const Tile& tile = impl_->spec.lanes[lane];
  const int programs = tile.slots * merge_shares(tile), threads = merge_threads(tile);
  if (LaunchEx* launch_ex = driver().launch_ex; launch_ex && vendor::overlaps(impl_->facts))
    launch_overlapping(launch_ex, function, programs, threads, args, stream, "forward");
  else
    launch(function, programs, threads, 0, args, stream, "forward");
}
void Kernels::direct(int lane, const AttendArgs& args, int programs, void*, void* stream) const {
  const Tile& tile = impl_->spec.lanes[lane];
  launch(impl_->lanes[lane].attend, programs, launched_threads(impl_->spec.cfg, tile), shared_bytes(impl_->spec.cfg, tile),
         args, stream, "forward_mha");
}
void Kernels::store(const StoreArgs& args, int tokens, void* stream) const {
  launch(impl_->store, tokens, kRowThreads, 0, args, stream, "kv_cache_update");
}
void Kernels::gather(const GatherArgs& args, int rows, void* stream) const {
  launch(impl_->gather, rows, kRowThreads, 0, args, stream, "context_gather");
}
void Kernels::merge(const MergeArgs& args, int tokens, void* stream) const {
  launch(impl_->merge, tokens * args.num_heads, kRowThreads, 0, args, stream, "merge_states");
}

}  // namespace anyattn::portable
