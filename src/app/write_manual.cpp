// Writes the manual page and the completions into the current folder, for installation. The build runs it;
// users have no need of it.
#include <cstdio>
#include <fstream>

#include "app/manual/completions.h"
#include "app/manual/man_page.h"

namespace {

bool write(const char* path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) std::fprintf(stderr, "write_manual: cannot write %s\n", path);
  return static_cast<bool>(file);
}

}  // namespace

int main() {
  const bool done = write("headspan.1", headspan::man_page()) &&
                    write("headspan.bash", headspan::bash_completion()) &&
                    write("_headspan", headspan::zsh_completion());
  return done ? 0 : 1;
}
