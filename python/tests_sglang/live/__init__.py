"""SGLang engines and their trainers in processes of their own, which tests hold and kill."""
