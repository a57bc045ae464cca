// headspan-bench NAME [--option value ...]: one benchmark. Exit code 0 when every figure is what is required
// of it, 1 when one is not or the run failed, 2 for bad input.
#include <boost/program_options.hpp>
#include <cstdio>
#include <iostream>
#include <map>

#include "base/process/process_setup.h"
#include "base/provenance.h"
#include "bench/bench.h"
#include "dist/blas_core.h"
#include "dist/comm/agreement.h"
#include "dist/threads.h"
#include "model/core/torch_runtime.h"

namespace po = boost::program_options;

namespace headspan {
namespace {

struct Benchmark {
  bool (*run)(const BenchOptions&, const Comm&);
  bool needs_folder;
  std::int64_t tokens = 30000;  // unless --tokens says
};

const std::map<std::string, Benchmark>& benchmarks() {
  static const std::map<std::string, Benchmark> all = {{"gram", {bench_gram, false}},
                                                       {"pairwise", {bench_statistics, false}},
                                                       {"topn", {bench_statistics, false}},
                                                       {"selection", {bench_statistics, false}},
                                                       {"statistics", {bench_statistics, false}},
                                                       {"study", {bench_study, false}},
                                                       {"load", {bench_load, true}},
                                                       {"machine", {bench_machine, false}},
                                                       {"forward", {bench_forward, true, 2048}},
                                                       {"archive", {bench_archive, true}},
                                                       {"cache", {bench_cache, true}},
                                                       {"overlap", {bench_overlap, false}},
                                                       {"eigenvalues", {bench_overlap, false}},
                                                       {"singular", {bench_overlap, false}},
                                                       {"scaling", {bench_scaling, true, 8192}},
                                                       {"device", {bench_device, true, 8192}},
                                                       {"solves", {bench_solves, false}},
                                                       {"products", {bench_products, false, 8192}},
                                                       {"memory", {bench_memory, true, 8192}}};
  return all;
}

std::string names() {
  std::string list;
  for (const auto& [name, benchmark] : benchmarks()) list += (list.empty() ? "" : ", ") + name;
  return list;
}

po::options_description describe(BenchOptions& o) {
  po::options_description options("headspan-bench NAME [--option value ...]; NAME: " + names());
  auto add = options.add_options();
  add("help", "print this");
  add("version", "print the version");
  add("name", po::value(&o.name)->required(), "which benchmark");
  add("layers", po::value(&o.layers)->default_value(o.layers), "layers");
  add("heads", po::value(&o.heads)->default_value(o.heads), "heads of a layer");
  add("head-size", po::value(&o.head_size)->default_value(o.head_size), "coordinates of a head");
  add("tokens", po::value(&o.tokens),
      "tokens (default 30000; memory, scaling, device and products 8192; forward 2048, one batch)");
  add("sequence-length", po::value(&o.sequence_length)->default_value(o.sequence_length),
      "of memory, forward, scaling and device; of cache: the prompt");
  add("batch", po::value(&o.batch)->default_value(o.batch), "of cache: sequences that decode together");
  add("device", po::value(&o.device)->default_value(o.device),
      "of cache, device, forward, products and solves: cpu, or cuda, where models are in bfloat16");
  add("plan", po::value(&o.plan),
      "of cache: a compression plan beside the full cache: a file, or latent or headspan, made up; of "
      "archive: a codec");
  add("repeats", po::value(&o.repeats)->default_value(o.repeats), "counted runs after one warm-up");
  add("precision", po::value(&o.precision)->default_value(o.precision),
      "of the Gram's products: float64, float32 or split");
  add("folder", po::value(&o.folder),
      "of load, forward and cache: a checkpoint; of memory, scaling and device: config.json is enough; of "
      "machine: the files that are read, none by default; of archive: a file of keys and values");
  return options;
}

/// Throws InputError for what no benchmark could run with.
void check(const BenchOptions& o) {
  if (benchmarks().count(o.name) == 0)
    throw InputError("", "NAME", o.name, "is no benchmark", "use one of " + names());
  if (o.precision != "float64" && o.precision != "float32" && o.precision != "split")
    throw InputError("", "--precision", o.precision, "is not known", "use float64, float32 or split");
  if (o.device != "cpu" && o.device != "cuda")
    throw InputError("", "--device", o.device, "is not known", "use cpu or cuda");
  if (benchmarks().at(o.name).needs_folder && o.folder.empty())
    throw InputError("", "--folder", "", "is needed by " + o.name, "name what it measures");
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"--layers", o.layers}, {"--heads", o.heads},     {"--head-size", o.head_size},
      {"--tokens", o.tokens}, {"--repeats", o.repeats}, {"--sequence-length", o.sequence_length},
      {"--batch", o.batch}};
  for (const auto& [name, value] : sizes)
    if (value < 1) throw InputError("", name, std::to_string(value), "is too small", "give at least 1");
}

/// Returns the exit code. Collective over comm.
int run(BenchOptions options, const Comm& comm) {
  check(options);
  options.threads = threads_per_rank(comm);
  set_threads(options.threads);
  set_torch_threads(options.threads);
  if (comm.is_root()) {
    std::printf("%s, %s, %s, %d x %d (ranks x threads)\n", program_name().c_str(), compiler().c_str(),
                iso_time_utc().c_str(), comm.size(), options.threads);
    for (const std::string& line : {describe_blas(), blas_warning()})
      if (!line.empty()) std::printf("%s\n", line.c_str());
  }
  return benchmarks().at(options.name).run(options, comm) ? 0 : 1;
}

}  // namespace
}  // namespace headspan

int main(int argc, char** argv) {
  headspan::restore_process_name();
  headspan::disable_heap_trim();
  using namespace headspan;
  if (print_blas_speed(argc, argv)) return 0;
  const bool waits = set_passive_wait(), multiplies = use_best_blas_core();
  if (waits || multiplies) start_again(argv);
  MpiSession session(&argc, &argv);
  const Comm comm = Comm::duplicate(MPI_COMM_WORLD);
  const auto refuse = [&comm](const std::string& why, int exit_code) {
    if (comm.is_root()) std::fprintf(stderr, "headspan-bench: %s\n", why.c_str());
    return exit_code;
  };
  try {
    BenchOptions options;
    const auto description = describe(options);
    po::variables_map given;
    const auto position = po::positional_options_description().add("name", 1);
    po::store(po::command_line_parser(argc, argv).options(description).positional(position).run(), given);
    if (given.count("help") + given.count("version") > 0) {
      if (comm.is_root() && given.count("help") > 0) std::cout << description;
      if (comm.is_root() && given.count("version") > 0)
        std::cout << program_name() << "\n" << describe_blas() << "\n";
      return 0;
    }
    po::notify(given);
    const auto benchmark = benchmarks().find(options.name);
    if (given.count("tokens") == 0 && benchmark != benchmarks().end())
      options.tokens = benchmark->second.tokens;
    return run(options, comm);
  } catch (const po::error& e) {
    return refuse(e.what(), 2);
  } catch (const InputError& e) {
    return refuse(e.what(), 2);
  } catch (const AgreedError& e) {
    return refuse(e.what(), e.exit_code());
  } catch (const std::exception& e) {
    abort_job(e.what());
  }
}
