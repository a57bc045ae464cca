// `headspan archive encode`: the keys and values of one sequence, as another program wrote them, become an
// archive (io/archive/archive_file.h), coded with a model's codec.
#pragma once

#include "app/job/job.h"
#include "base/log.h"
#include "dist/comm/mpi.h"
#include "io/archive/kv_codec.h"

namespace headspan {

/// Returns the step that the job asks for, by the codec's curve. Throws InputError if the curve does not
/// reach it. Local.
int step_of(const Job::Archive& archive, const KvCodec& codec);

/// Runs the command and returns the exit code, 0. The ranks share the chunks of tokens; the bytes do not
/// depend on how many they are. Throws AgreedError. Collective over world.
int encode_archive(const Job& job, const Comm& world, const Log& log);

}  // namespace headspan
