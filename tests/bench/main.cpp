// headspan-bench NAME [--option value ...]: one benchmark; the exit code is 0 when every figure is what is
// required of it.
#include <boost/program_options.hpp>
#include <cstdio>
#include <iostream>

#include <ATen/Parallel.h>

#include "base/provenance.h"
#include "bench/bench.h"
#include "dist/threads.h"

namespace po = boost::program_options;

namespace {

po::options_description describe(headspan::BenchOptions& o) {
  po::options_description options(
      "headspan-bench NAME [--option value ...]; NAME: gram, pairwise, topn, forward, load, model");
  auto add = options.add_options();
  add("help", "print this");
  add("name", po::value(&o.name)->required(), "which benchmark");
  add("layers", po::value(&o.layers)->default_value(o.layers), "layers");
  add("heads", po::value(&o.heads)->default_value(o.heads), "heads of a layer");
  add("head-size", po::value(&o.head_size)->default_value(o.head_size), "coordinates of a head");
  add("tokens", po::value(&o.tokens)->default_value(o.tokens), "tokens");
  add("repeats", po::value(&o.repeats)->default_value(o.repeats), "counted runs after one warm-up");
  add("precision", po::value(&o.precision)->default_value(o.precision),
      "of the products: float64 or float32");
  add("folder", po::value(&o.folder), "a checkpoint, for load and model");
  add("sequence-length", po::value(&o.sequence_length)->default_value(o.sequence_length), "for model");
  return options;
}

bool run(const headspan::BenchOptions& options, const headspan::Comm& comm) {
  if (options.name == "gram") return bench_gram(options, comm);
  if (options.name == "load") return bench_load(options, comm);
  if (options.name == "model") return bench_model(options, comm);
  if (options.name == "pairwise" || options.name == "topn" || options.name == "forward")
    return bench_statistics(options, comm);
  throw headspan::InputError("", "NAME", options.name, "is no benchmark",
                             "use gram, pairwise, topn, forward, load or model");
}

}  // namespace

int main(int argc, char** argv) {
  headspan::MpiSession session(&argc, &argv);
  const headspan::Comm comm = headspan::Comm::duplicate(MPI_COMM_WORLD);
  headspan::BenchOptions options;
  try {
    const auto description = describe(options);
    po::variables_map given;
    po::store(po::command_line_parser(argc, argv)
                  .options(description)
                  .positional(po::positional_options_description().add("name", 1))
                  .run(),
              given);
    if (given.count("help") > 0) {
      if (comm.is_root()) std::cout << description;
      return 0;
    }
    po::notify(given);
    const int threads = headspan::threads_per_rank(comm);
    headspan::set_threads(threads);
    at::set_num_threads(threads);
    if (comm.is_root())
      std::printf("%s, %s, %s, %d ranks x %d threads\n", headspan::program_name().c_str(),
                  headspan::compiler().c_str(), headspan::iso_time_utc().c_str(), comm.size(), threads);
    return run(options, comm) ? 0 : 1;
  } catch (const headspan::InputError& e) {
    if (comm.is_root()) std::fprintf(stderr, "headspan-bench: %s\n", e.what());
    return 2;
  } catch (const po::error& e) {
    if (comm.is_root()) std::fprintf(stderr, "headspan-bench: %s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    headspan::abort_job(e.what(), 1);
  }
}
