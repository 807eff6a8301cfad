"""One module for every size that a task declares: which plans it needs, and how their texts become one."""
