// Is each detector awake? Every fault below must be found, by the kind of finding that it is listed with; the small
// kernels also run without their fault, where nothing may be found.

#include <filesystem>
#include <fstream>
#include <sstream>

#include "rungs.hpp"

namespace tilewise::metal_bench {
namespace {

std::string write_kernel(const std::string& name, const std::string& text) {
  const std::filesystem::path folder = std::filesystem::path(TW_CACHE_DIR) / "faults";
  std::filesystem::create_directories(folder);
  std::string file = name;
  std::ranges::replace_if(file, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  const std::string path = (folder / (file + ".metal")).string();
  std::ofstream(path) << text;
  return path;
}

std::string read(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// Findings in all schedules; `result` when `verify` objects to the outputs.

template <class Verify>
std::vector<Finding> findings_of(const Launch& launch, Verify verify) {
  std::vector<Finding> all;
  for (const Schedule& schedule : schedules()) {
    const Result result = run(launch, schedule, Mode::checked);
    all.insert(all.end(), result.findings.begin(), result.findings.end());
    const bool ran = std::ranges::none_of(result.findings,
                                          [](const Finding& f) { return f.kind == "compile" || f.kind == "argument"; });
    if (!ran) break;
    if (const std::string why = verify(); !why.empty()) all.push_back({"result", why});
  }
  return all;
}

// `kind` must be among the findings, in a message that holds `text`.
std::string expect(const std::vector<Finding>& findings, const std::string& kind, const std::string& text) {
  for (const Finding& f : findings) {
    if (f.kind == kind && f.message.find(text) != std::string::npos) return {};
  }
  return "expected " + kind + (text.empty() ? "" : " (" + text + ")") + ", found " +
         (findings.empty() ? "nothing" : text_of(findings));
}

// ---------------------------------------------------------------------------------------------- faults in the rungs

struct RungFault {
  const char* name;
  int rung;
  const char* from;  // the text to replace, which must be there
  const char* to;
  int which;  // 1: its first occurrence, 2: its second
  bool causal;
  const char* kind;
  const char* text;
};

const char* const barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);";

const RungFault rung_faults[] = {
    {"first barrier dropped", 2, barrier, "", 1, false, "race", "no barrier between"},
    {"first barrier dropped, causal", 2, barrier, "", 1, true, "uninitialised", "k_tile"},
    {"second barrier dropped", 2, barrier, "", 2, false, "race", "no barrier between"},
    {"second barrier dropped, seen in the result", 2, barrier, "", 2, false, "result", ""},
    {"first barrier skipped without a query", 2, barrier,
     "if (has_query) threadgroup_barrier(mem_flags::mem_threadgroup);", 1, false, "divergence", "different"},
    {"second barrier skipped without a query", 2, barrier,
     "if (has_query) threadgroup_barrier(mem_flags::mem_threadgroup);", 2, false, "divergence", ""},
    {"barrier that orders no memory", 2, barrier, "threadgroup_barrier(mem_flags::mem_none);", 1, false, "race", ""},
    {"barrier that orders device memory", 2, barrier, "threadgroup_barrier(mem_flags::mem_device);", 2, false, "race",
     ""},
    {"helpers return early", 2, "float q[D];", "if (!has_query) return;\n  float q[D];", 1, false, "divergence",
     "has returned"},
    {"own loop bound when causal", 2, "tile_start < group_keys", "tile_start < my_keys", 1, true, "divergence", ""},
    {"tail loaded from behind the end", 2, "element < N * D ? K[element] : 0.0f", "K[element]", 1, false, "bounds",
     "buffer K"},
    {"zero-filled tail key scored", 2, "my_keys > tile_start ? min(TILE, my_keys - tile_start) : 0",
     "my_keys > tile_start ? TILE : 0", 1, false, "result", ""},
    {"helpers write", 2, "if (!has_query) return;", "", 1, false, "bounds", "buffer O"},
    {"tile too small", 2, "float v_tile[TILE * D];", "float v_tile[TILE * D - 1];", 1, false, "bounds", "v_tile"},
    {"tile loaded in part", 2, "i < TILE * D; i +=", "i < TILE * D - 32; i +=", 1, false, "uninitialised", "k_tile"},
    {"mask in tile positions", 2, "const uint my_keys = has_query ? (CAUSAL ? query + 1 : N) : 0;",
     "const uint my_keys = has_query ? (CAUSAL ? lane + 1 : N) : 0;", 1, true, "result", ""},
    {"sum not rescaled", 2, "l = l * alpha + weight", "l = l + weight", 1, false, "result", ""},
    {"output not rescaled", 1, "u[d] = u[d] * alpha +", "u[d] = u[d] +", 1, false, "result", ""},
    {"future key seen", 1, "CAUSAL ? query + 1 : N", "CAUSAL ? query + 2 : N", 1, true, "bounds", ""},
    {"no guard against the rounded grid", 1, "if (query >= N) return;", "", 1, false, "bounds", "buffer Q"},
    {"last row never written", 1, "if (query >= N) return;", "if (query >= N - 1) return;", 1, false, "result",
     "never written"},
    {"private array overrun", 1, "for (uint d = 0; d < D; ++d) score +=", "for (uint d = 0; d <= D; ++d) score +=", 1,
     true, "undefined", "index out of bounds"},
    {"threadgroup memory above 32 KB", 2, "TILE = 16", "TILE = 160", 1, false, "limits", "threadgroup memory"},
};

std::string seed(std::string text, const RungFault& fault) {
  std::size_t at = text.find(fault.from);
  if (fault.which == 2 && at != std::string::npos) at = text.find(fault.from, at + 1);
  if (at == std::string::npos) return {};
  return text.replace(at, std::strlen(fault.from), fault.to);
}

std::string caught(const RungFault& fault) {
  const std::string text = seed(read(rung_source(fault.rung)), fault);
  if (text.empty()) return "the text to be replaced is no longer in the rung";
  RungProblem p = rung_problem(write_kernel(fault.name, text), 40, 32, fault.causal);
  return expect(findings_of(launch_of(p), [&] { return float32_rule(p); }), fault.kind, fault.text);
}

// Faults of the launch rather than the kernel.
std::string exact_grid() {
  RungProblem p = rung_problem(rung_source(2), 40, 32, false);
  Launch launch = launch_of(p);
  launch.grid_threads = {40, 1, 1};
  return expect(findings_of(launch, [&] { return float32_rule(p); }), "uninitialised", "k_tile");
}
std::string too_many_threads() {
  RungProblem p = rung_problem(rung_source(1), 40, 32, false);
  Launch launch = launch_of(p);
  launch.threads = {32, 33, 1};
  return expect(run(launch, {}, Mode::checked).findings, "limits", "1056 threads");
}
std::string unbound_argument() {
  RungProblem p = rung_problem(rung_source(1), 40, 32, false);
  Launch launch = launch_of(p);
  launch.buffers.erase(launch.buffers.begin() + 2);
  return expect(run(launch, {}, Mode::checked).findings, "argument", "V");
}
std::string short_buffer(Mode mode) {
  RungProblem p = rung_problem(rung_source(1), 40, 32, false);
  Launch launch = launch_of(p);
  launch.buffers[2].bytes -= mode == Mode::plain ? 16 : 4;  // a guard page begins at a multiple of 16 bytes
  return expect(run(launch, {}, mode).findings, "bounds", "buffer V");
}

// ---------------------------------------------------------------------------------------------- small kernels

struct SmallFault {
  const char* name;
  const char* kind;
  const char* text;
  const char* before;  // in front of the kernel
  const char* faulty;  // the kernel's body; out[i] must be in[i] + 1
  const char* right;   // the same without the fault
};

const char* const right_body = "out[i] = in[i] + 1.0f;";

const SmallFault small_faults[] = {
    {"two simdgroups without a group barrier", "race", "thread", "",
     "threadgroup float x[64]; x[index] = in[i]; simdgroup_barrier(mem_flags::mem_threadgroup);\n"
     "out[i ^ 32] = x[index ^ 32] + 1.0f;",
     "threadgroup float x[64]; x[index] = in[i]; threadgroup_barrier(mem_flags::mem_threadgroup);\n"
     "out[i ^ 32] = x[index ^ 32] + 1.0f;"},
    {"lanes of one simdgroup without a barrier", "race", "thread", "",
     "threadgroup float x[64]; x[index] = in[i];\nout[i ^ 1] = x[index ^ 1] + 1.0f;",
     "threadgroup float x[64]; x[index] = in[i]; simdgroup_barrier(mem_flags::mem_threadgroup);\n"
     "out[i ^ 1] = x[index ^ 1] + 1.0f;"},
    {"write after another simdgroup's read", "race", "no barrier between", "",
     "threadgroup float x[64]; x[index] = in[i]; threadgroup_barrier(mem_flags::mem_threadgroup);\n"
     "const float y = x[index ^ 32];\nsimdgroup_barrier(mem_flags::mem_threadgroup);\n"
     "x[index] = 0.0f; out[i ^ 32] = y + 1.0f;",
     "threadgroup float x[64]; x[index] = in[i]; threadgroup_barrier(mem_flags::mem_threadgroup);\n"
     "const float y = x[index ^ 32];\nthreadgroup_barrier(mem_flags::mem_threadgroup);\n"
     "x[index] = 0.0f; out[i ^ 32] = y + 1.0f;"},
    {"groups that write one place", "race", "buffer out", "",
     "out[i] = in[i] + 1.0f; if (index == 0) out[0] = in[0] + 1.0f;", right_body},
    {"groups that pass data through device memory", "race", "buffer out", "",
     "out[i] = in[i] + 1.0f; threadgroup_barrier(mem_flags::mem_device); if (out[i ^ 64] > 1e9f) out[i] = 0.0f;",
     "out[i] = in[i] + 1.0f; threadgroup_barrier(mem_flags::mem_device); if (out[i ^ 1] > 1e9f) out[i] = 0.0f;"},
    {"output read before it is written", "uninitialised", "buffer out", "",
     "if (out[i] == 0.0f) out[i] = 1.0f; out[i] = in[i] + 1.0f;", right_body},
    {"input written", "bounds", "writes the input in", "", "const_cast<device float*>(in)[i] = 0.0f; out[i] = 1.0f;",
     right_body},
    {"reduction in a branch", "divergence", "simdgroup operation", "",
     "float x = 1.0f;\nif (lane < 16) x = simd_sum(in[i]) * 0.0f + 1.0f;\nout[i] = in[i] + x;",
     "float x = 1.0f;\nx = simd_sum(in[i]) * 0.0f + 1.0f;\nout[i] = in[i] + x;"},
    {"two different shuffles", "divergence", "different simdgroup operations", "",
     "float x;\nif (lane < 16) {\n  x = simd_shuffle(in[i], ushort(lane));\n} else {\n"
     "  x = simd_shuffle_xor(in[i], 0);\n}\nout[i] = x + 1.0f;",
     "out[i] = simd_shuffle(in[i], ushort(lane)) + 1.0f;"},
    {"shuffle from lane 40", "simd", "outside the simdgroup", "",
     "out[i] = simd_shuffle(in[i], 40) * 0.0f + in[i] + 1.0f;", right_body},
    {"matrix load at addresses that differ by lane", "simd", "different addresses", "",
     "simdgroup_float8x8 m; simdgroup_load(m, in + lane, 8); out[i] = in[i] + 1.0f;",
     "simdgroup_float8x8 m; simdgroup_load(m, in, 8); out[i] = in[i] + 1.0f;"},
    {"matrix load out of bounds", "bounds", "outside every buffer", "",
     "simdgroup_float8x8 m; simdgroup_load(m, in + 68, 8); out[i] = in[i] + 1.0f;",
     "simdgroup_float8x8 m; simdgroup_load(m, in + 64, 8); out[i] = in[i] + 1.0f;"},
    {"matrix load past a threadgroup array", "bounds", "threadgroup array x", "",
     "threadgroup float x[64]; x[index] = in[i]; threadgroup_barrier(mem_flags::mem_threadgroup);\n"
     "simdgroup_float8x8 m; simdgroup_load(m, x, 9); out[i] = in[i] + 1.0f;",
     "threadgroup float x[64]; x[index] = in[i]; threadgroup_barrier(mem_flags::mem_threadgroup);\n"
     "simdgroup_float8x8 m; simdgroup_load(m, x, 8); out[i] = in[i] + 1.0f;"},
    {"matrix stored and read back at once", "race", "simdgroup", "",
     "threadgroup float x[128]; simdgroup_float8x8 m; simdgroup_load(m, in + i / 64 * 64, 8);\n"
     "simdgroup_store(m, x + simdgroup * 64, 8);\nout[i] = x[simdgroup * 64 + index] + 1.0f;",
     "threadgroup float x[128]; simdgroup_float8x8 m; simdgroup_load(m, in + i / 64 * 64, 8);\n"
     "simdgroup_store(m, x + simdgroup * 64, 8); simdgroup_barrier(mem_flags::mem_threadgroup);\n"
     "out[i] = x[simdgroup * 64 + index] + 1.0f;"},
    {"product with an unset matrix", "result", "", "",
     "simdgroup_float8x8 a, b(1.0f); simdgroup_multiply(a, a, b); out[i] = in[i] + 1.0f + 0.0f * "
     "a.thread_elements().x;",
     "simdgroup_float8x8 a(1.0f), b(1.0f); simdgroup_multiply(a, a, b);\n"
     "out[i] = in[i] + 1.0f + 0.0f * a.thread_elements().x;"},
    {"misaligned vector", "undefined", "misaligned", "",
     "out[i] = in[i] + 1.0f + 0.0f * (*reinterpret_cast<device const float4*>(in + i % 2)).x;",
     "out[i] = in[i] + 1.0f + 0.0f * (*reinterpret_cast<device const float4*>(in + i % 2 * 4)).x;"},
    {"shift by 32", "undefined", "shift", "", "out[i] = in[i] + float(1u << ((i & 0u) + 32u) >> 31) * 0.0f + 1.0f;",
     right_body},
    {"integer division by zero", "undefined", "division", "", "out[i] = in[i] + float(i / (i & 0u)) * 0.0f + 1.0f;",
     "out[i] = in[i] + float(i / (i | 1u)) * 0.0f + 1.0f;"},
    {"threadgroup pointer as device pointer", "lint", "threadgroup", "",
     "threadgroup float x[64]; device float* p = x; p[index] = 0.0f; out[i] = in[i] + 1.0f;", right_body},
    {"device pointer to a function of threadgroup pointers", "lint", "device",
     "float first(threadgroup const float* p) { return p[0]; } void raise(thread float& x) { x += 1.0f; }",
     "out[i] = in[i] + 1.0f + 0.0f * first(in);",
     "threadgroup float x[64]; x[index] = in[i]; threadgroup_barrier(mem_flags::mem_threadgroup);\n"
     "out[i] = in[i] + 1.0f + 0.0f * first(x);"},
    {"cast between address spaces", "lint", "reinterpret_cast", "",
     "out[i] = in[i] + 1.0f + 0.0f * reinterpret_cast<threadgroup const float*>(in)[i];", right_body},
    {"constant written", "lint", "const", "constant float one[1] = {1.0f};", "one[0] = 1.0f; out[i] = in[i] + one[0];",
     "out[i] = in[i] + one[0];"},
    {"C-style pointer cast", "subset", "C-style pointer cast", "", "out[i] = ((device float*)in)[i] + 1.0f;",
     right_body},
    {"C-style scalar cast", "lint", "old-style cast", "", "out[i] = in[i] + (float)1;", "out[i] = in[i] + float(1);"},
    {"vector cast that is a comma operator", "subset", "comma operators", "",
     "const float4 v = (float4)(1.0f, 2.0f, 3.0f, 4.0f); out[i] = in[i] + v.x;",
     "const float4 v = float4(1.0f, 2.0f, 3.0f, 4.0f); out[i] = in[i] + v.x;"},
    {"comma operator", "lint", "comma", "", "const float v = (in[i], 1.0f); out[i] = in[i] + v;", right_body},
    {"lambda", "subset", "lambda", "", "const auto f = [&](float x) { return x + 1.0f; }; out[i] = f(in[i]);",
     right_body},
    {"double", "subset", "double", "", "const double one = 1.0f; out[i] = in[i] + float(one);", right_body},
    {"literal of type double", "subset", "literal", "", "out[i] = in[i] + float(1.0);", right_body},
    {"std", "subset", "std", "", "out[i] = std::is_same<int, int>::value ? in[i] + 1.0f : 0.0f;", right_body},
    {"function constant", "subset", "function constants", "constant bool flag [[function_constant(0)]];", right_body,
     right_body},
    {"recursion", "subset", "recursion", "float f(float x) { return x > 8.0f ? x : f(x + 9.0f); }",
     "out[i] = in[i] + 1.0f + 0.0f * f(in[i]);", right_body},
    {"mutual recursion", "subset", "recursion",
     "float g(float x); float f(float x) { return g(x); } float g(float x) { return x > 8.0f ? x : f(x + 9.0f); }",
     "out[i] = in[i] + 1.0f + 0.0f * f(in[i]);", right_body},
    {"long long", "subset", "LL", "", "const long big = 1LL; out[i] = in[i] + float(big);",
     "const long big = 1L; out[i] = in[i] + float(big);"},
    {"inline assembly", "subset", "undocumented", "float f(float x) __asm(\"air.something\");", right_body, right_body},
    {"character outside ASCII", "subset", "ASCII", "// \xc3\xa9", right_body, right_body},
    {"threadgroup variable in a function", "subset", "outside a kernel's body",
     "float f(float x) { threadgroup float y; y = x; return y; }", "out[i] = f(in[i]) + 1.0f;", right_body},
    {"pointer without an address space", "subset", "no address space", "",
     "device const float* p = in; const float* q = "
     "p; out[i] = in[i] + 1.0f + 0.0f * *q;",
     "device const float* p = in; out[i] = p[i] + 1.0f;"},
    {"reference without an address space", "subset", "no address space", "void raise(float& x) { x += 1.0f; }",
     "float x = in[i]; raise(x); out[i] = x;", right_body},
    {"variable at program scope", "subset", "not constant", "float one = 1.0f;", "out[i] = in[i] + one;", right_body},
    {"exception", "subset", "not in MSL", "", "if (in[i] > 1e30f) throw 1; out[i] = in[i] + 1.0f;", right_body},
};

std::string kernel_text(const std::string& name, const char* body) {
  return "kernel void " + name +
         "(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],\n"
         "uint i [[thread_position_in_grid]], uint index [[thread_index_in_threadgroup]],\n"
         "uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {\n" +
         body + "\n}\n";
}

const char* const file_head = "#include <metal_stdlib>\nusing namespace metal;\n";

bool is_static(const SmallFault& fault) {
  return std::strcmp(fault.kind, "subset") == 0 || std::strcmp(fault.kind, "lint") == 0;
}

// One file of kernels faulty_0, faulty_1, ... (those that need running), or right_0, right_1, ... (all).
std::string all_in_one(bool right) {
  std::string text = file_head;
  int number = 0;
  for (const SmallFault& fault : small_faults) {
    if (right && fault.right != right_body) text += std::string(fault.before) + "\n";
    if (right || !is_static(fault)) {
      text += kernel_text((right ? "right_" : "faulty_") + std::to_string(number), right ? fault.right : fault.faulty);
    }
    ++number;
  }
  return write_kernel(right ? "all right" : "all faulty", text);
}

// 128 threads in two groups of two simdgroups.
std::vector<Finding> run_small(const std::string& source, const std::string& function) {
  std::vector<float> in(128), out(128);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
  Launch launch;
  launch.source = source;
  launch.function = function;
  launch.groups = {2, 1, 1};
  launch.threads = {64, 1, 1};
  launch.buffers = {buffer_of(0, "in", in, Access::input), buffer_of(1, "out", out, Access::output)};
  return findings_of(launch, [&]() -> std::string {
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (out[i] != in[i] + 1.0F) return "element " + std::to_string(i) + " is " + std::to_string(out[i]);
    }
    return {};
  });
}

std::vector<Finding> lint_file(const std::string& source) {
  Launch launch;
  launch.source = source;
  return lint(launch);
}

int test() {
  Report report;
  for (const RungFault& fault : rung_faults) report.add(fault.name, caught(fault));
  report.add("grid of exactly N threads", exact_grid());
  report.add("more than 1024 threads", too_many_threads());
  report.add("unbound argument", unbound_argument());
  report.add("buffer one element short", short_buffer(Mode::checked));
  report.add("buffer one element short, counting", short_buffer(Mode::counted));
  report.add("buffer one element short, by its guard page", short_buffer(Mode::plain));
  const std::string faulty = all_in_one(false);
  const std::string right = all_in_one(true);
  report.add("lint of the kernels that are right", text_of(lint_file(right)));
  int number = 0;
  for (const SmallFault& fault : small_faults) {
    const std::string suffix = std::to_string(number++);
    const std::vector<Finding> found =
        is_static(fault) ? lint_file(write_kernel(fault.name, file_head + std::string(fault.before) + "\n" +
                                                                  kernel_text("fault", fault.faulty)))
                         : run_small(faulty, "faulty_" + suffix);
    report.add(fault.name, expect(found, fault.kind, fault.text));
    report.add(std::string(fault.name) + ", put right", text_of(run_small(right, "right_" + suffix)));
  }
  return report.finish();
}

}  // namespace
}  // namespace tilewise::metal_bench

int main() { return tilewise::metal_bench::test(); }
