#include "dist/comm/agreement.h"

#include <new>

namespace headspan {

void agree(const Comm& comm, const std::function<void()>& step) {
  int code = 0;
  std::string line;
  try {
    step();
  } catch (const AgreedError& e) {
    code = e.exit_code();
    line = e.what();
  } catch (const InputError& e) {
    code = 2;
    line = e.what();
  } catch (const std::bad_alloc&) {
    code = 1;
    line = "rank " + std::to_string(world_rank()) + ": out of memory";
  } catch (const std::exception& e) {
    code = 1;
    line = "rank " + std::to_string(world_rank()) + ": " + error_message(e);
  }
  const int first = comm.min(code == 0 ? comm.size() : comm.rank());
  if (first == comm.size()) return;
  line = comm.broadcast(line, first);
  comm.broadcast(&code, 1, first);
  throw AgreedError(line, code);
}

}  // namespace headspan
