// Libraries that are present, missing, or without a required symbol.
#include "compiler/loader/shared_library.h"

#include <dlfcn.h>

#include <gtest/gtest.h>

namespace srjit {
namespace {

constexpr const char* kMath = "libm.so.6";
constexpr const char* kC = "libc.so.6";
constexpr const char* kNoLibrary = "libsrjit-no-such-library.so.1";

using UnaryFunction = double(double);

Result<UnaryFunction*> cosineOf(const SharedLibrary& library) {
  UnaryFunction* cosine = nullptr;
  if (const Status status = library.bind(cosine, "cos"); !status) return status.error();
  return cosine;
}

TEST(SharedLibrary, EntriesCanBeCalled) {
  const auto library = SharedLibrary::open(kMath);
  ASSERT_TRUE(library) << library.error().message;
  EXPECT_EQ(library->name(), kMath);
  const auto cosine = cosineOf(*library);
  ASSERT_TRUE(cosine) << cosine.error().message;
  EXPECT_EQ((*cosine)(0), 1);
  EXPECT_EQ(library->find("cos"), reinterpret_cast<void*>(*cosine));
}

TEST(SharedLibrary, MissingLibraryReportsDlerror) {
  const auto library = SharedLibrary::open(kNoLibrary);
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code, Errc::kMachine);
  ASSERT_EQ(dlopen(kNoLibrary, RTLD_NOW | RTLD_LOCAL), nullptr);
  EXPECT_EQ(library.error().message, dlerror());
}

TEST(SharedLibrary, MissingSymbolErrorNamesTheLibrary) {
  const auto library = SharedLibrary::open(kMath);
  ASSERT_TRUE(library);
  EXPECT_EQ(library->find("srjitNoSuchSymbol"), nullptr);
  UnaryFunction* entry = [](double x) { return x; };
  const Status status = library->bind(entry, "srjitNoSuchSymbol");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::kMachine);
  EXPECT_EQ(status.error().message, "libm.so.6 lacks srjitNoSuchSymbol");
  EXPECT_EQ(entry, nullptr);
}

TEST(SharedLibrary, FirstCompleteLibraryIsUsed) {
  std::string used;
  const auto cosine = SharedLibrary::openFirst({"", kNoLibrary, kC, kMath}, [&](const SharedLibrary& library) {
    used += library.name() + ' ';
    return cosineOf(library);
  });
  ASSERT_TRUE(cosine) << cosine.error().message;
  EXPECT_EQ((*cosine)(0), 1);
  EXPECT_EQ(used, "libc.so.6 libm.so.6 ");
}

TEST(SharedLibrary, ReportsAReasonPerCandidate) {
  const auto cosine = SharedLibrary::openFirst({kNoLibrary, "", kC}, cosineOf);
  ASSERT_FALSE(cosine);
  EXPECT_EQ(cosine.error().code, Errc::kMachine);
  EXPECT_EQ(cosine.error().message, SharedLibrary::open(kNoLibrary).error().message + "; libc.so.6 lacks cos");
}

// Two versions of one library in a process must not see one another's symbols.
TEST(SharedLibrary, SymbolsAreLocal) {
  const auto library = SharedLibrary::open("libmvec.so.1");
  if (!library) GTEST_SKIP() << library.error().message;
  ASSERT_NE(library->find("_ZGVbN2v_cos"), nullptr);
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "_ZGVbN2v_cos"), nullptr);
}

}  // namespace
}  // namespace srjit
