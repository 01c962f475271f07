/* Runs one call of a kernel on Windows. The machine code is loaded as regard loads it, by llvmlite.dll of the wheel for
   Windows; the arrays are read from a file, two threads of the pool help, and the arrays are written to a file.

   caller.exe KERNEL NAME POOL CALL RESULT. The call, all numbers int64: scratch bytes, helpers, slots, the slots; number
   of arrays, for each its size in bytes and the bytes; number of addresses, for each its slot, its array and the offset
   there. The result: the arrays, one by one. */
#include <windows.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef void (*code)(void *, void *, int64_t);

static FILE *file;
static char *bell;

static int64_t number(void) {
    int64_t value;
    if (fread(&value, 8, 1, file) != 1) exit(3);
    return value;
}

static void *room(int64_t size) {
    void *place = _aligned_malloc(size + 4096, 128);
    memset(place, 0, size + 4096);
    return place;
}

static code work;

static DWORD WINAPI worker(void *mailbox) {
    work(mailbox, 0, (int64_t)bell);
    return 0;
}

/* ---- what regard/engines/jit/code/build.py does ---- */

static HMODULE llvm;

static void *call(const char *name) {
    void *found = GetProcAddress(llvm, name);
    if (!found) fprintf(stderr, "llvmlite.dll has no %s\n", name), exit(4);
    return found;
}

static void add_symbols(const char *library, const char **names) {
    void (*add)(const char *, void *) = call("LLVMPY_AddSymbol");
    for (; *names; names++) {
        void *found = GetProcAddress(LoadLibraryA(library), *names);
        if (!found) fprintf(stderr, "%s has no %s\n", library, *names), exit(4);
        add(*names, found);
    }
}

static void initialize(void) {
    static const char *kernel32[] = {"QueryPerformanceCounter", "QueryPerformanceFrequency", "SwitchToThread", 0};
    static const char *kernelbase[] = {"WaitOnAddress", "WakeByAddressSingle", 0};
    static const char *ucrtbase[] = {C_FUNCTIONS, 0};
    static int floats = 0x9875;
    llvm = LoadLibraryA("llvmlite.dll");
    if (!llvm) fprintf(stderr, "llvmlite.dll: error %lu\n", GetLastError()), exit(4);
    ((void (*)(void))call("LLVMPY_InitializeNativeTarget"))();
    ((void (*)(void))call("LLVMPY_InitializeNativeAsmPrinter"))();
    ((void (*)(void))call("LLVMPY_InitializeNativeAsmParser"))();
    add_symbols("kernel32.dll", kernel32);
    add_symbols("kernelbase.dll", kernelbase);
    add_symbols("ucrtbase.dll", ucrtbase);
    ((void (*)(const char *, void *))call("LLVMPY_AddSymbol"))("_fltused", &floats);
}

static void *load(const char *path) {
    char *error = 0, *bytes = malloc(64 << 20), triple[] = "x86_64-pc-windows-msvc";
    FILE *object = fopen(path, "rb");
    size_t size = fread(bytes, 1, 64 << 20, object);
    fclose(object);
    void *context = ((void *(*)(void))call("LLVMPY_GetGlobalContext"))();
    void *module = ((void *(*)(void *, const char *, char **))call("LLVMPY_ParseAssembly"))(context, "", &error);
    void *target = ((void *(*)(const char *, char **))call("LLVMPY_GetTargetFromTriple"))(triple, &error);
    void *machine = ((void *(*)(void *, const char *, const char *, const char *, int, const char *, const char *, int,
                                int, const char *))call("LLVMPY_CreateTargetMachine"))(
        target, triple, CPU, FEATURES, 3, "default", "jitdefault", 0, 1, "");
    void *engine = ((void *(*)(void *, void *, BOOL, char **))call("LLVMPY_CreateMCJITCompiler"))(
        module, machine, 0, &error);
    if (!engine) fprintf(stderr, "no engine: %s\n", error), exit(4);
    void *file = ((void *(*)(const char *, size_t))call("LLVMPY_CreateObjectFile"))(bytes, size);
    ((void (*)(void *, void *))call("LLVMPY_MCJITAddObjectFile"))(engine, file);
    ((void (*)(void *))call("LLVMPY_FinalizeObject"))(engine);
    return engine;
}

static code function(void *engine, const char *name) {
    uint64_t found = ((uint64_t (*)(void *, const char *))call("LLVMPY_GetFunctionAddress"))(engine, name);
    if (!found) fprintf(stderr, "no function %s\n", name), exit(4);
    return (code)found;
}

int main(int count, char **names) {
    initialize();
    code kernel = function(load(names[1]), names[2]);
    void *pool = load(names[3]);
    code share = function(pool, "share");
    work = function(pool, "work");
    file = fopen(names[4], "rb");
    int64_t scratch = (number() + 127) / 128 * 128, helpers = number(), slots = number();
    int64_t *block = room(8 * slots);
    for (int64_t i = 0; i < slots; i++) block[i] = number();
    int64_t arrays = number(), *sizes = room(8 * arrays);
    char **at = room(8 * arrays);
    for (int64_t i = 0; i < arrays; i++) {
        sizes[i] = number();
        at[i] = room(sizes[i]);
        if (fread(at[i], 1, sizes[i], file) != (size_t)sizes[i]) exit(3);
    }
    for (int64_t left = number(); left; left--) {
        int64_t slot = number(), array = number();
        block[slot] = (int64_t)(at[array] + number());
    }
    fclose(file);

    char *first = 0;
    bell = room(512);
    for (int i = 0; i < 2; i++) {
        char *mailbox = room(128);
        *(char **)(mailbox + 8) = first;
        first = mailbox;
        CreateThread(0, 0, worker, mailbox, 0, 0);
    }
    char *job = room(256), *memory = room((helpers + 1) * scratch);
    *(void **)job = (void *)kernel;
    *(void **)(job + 8) = block;
    *(void **)(job + 16) = memory;
    *(int64_t *)(job + 24) = scratch;
    *(int64_t *)(job + 32) = helpers;
    do share(job, first, (int64_t)bell); while (*(int64_t *)(job + 40));

    file = fopen(names[5], "wb");
    for (int64_t i = 0; i < arrays; i++) fwrite(at[i], 1, sizes[i], file);
    return fclose(file);
}
