# Run with cmake -P: writes OUTPUT, a C++ source that defines srjit::kSourceHash, the SHA-256 of the files listed in the
# file LIST, each with its path below ROOT. Line ends count, the place of the repository does not.
file(STRINGS ${LIST} files)
set(hashes "")
foreach(file IN LISTS files)
  file(SHA256 ${file} hash)
  file(RELATIVE_PATH name ${ROOT} ${file})
  string(APPEND hashes "${name} ${hash}\n")
endforeach()
string(SHA256 hash "${hashes}")
file(WRITE ${OUTPUT} "namespace srjit {\nextern const char* const kSourceHash;\nconst char* const kSourceHash = \"${hash}\";\n}\n")
